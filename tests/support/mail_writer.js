// A program of another kind at the same mailbox: locks it with proper-lockfile, reads all of it, puts
// one message behind and writes it back, in place or by renaming, as such programs do.
//
// usage: node mail_writer.js FILE COUNT in-place|rename LOG
// The id of each message that was written goes into LOG.
'use strict';

const fs = require('fs');
const { randomUUID } = require('crypto');
const lockfile = require('proper-lockfile');

const [file, count, how, log] = process.argv.slice(2);

const options = {
    // The mailbox need not exist yet.
    realpath: false,
    retries: { retries: 2000, minTimeout: 1, maxTimeout: 20 },
    onCompromised: (error) => {
        console.error('the lock was taken away:', error);
        process.exit(3);
    },
};

const write = (mails) => {
    const text = JSON.stringify(mails, null, 2);
    if (how === 'in-place') {
        fs.writeFileSync(file, text);
        return;
    }
    const temporary = `${file}.tmp.${randomUUID().slice(0, 8)}`;
    fs.writeFileSync(temporary, text);
    fs.renameSync(temporary, file);
};

const main = async () => {
    for (let number = 0; number < Number(count); number += 1) {
        const release = await lockfile.lock(file, options);
        const mails = fs.existsSync(file) ? JSON.parse(fs.readFileSync(file, 'utf8')) : [];
        const id = randomUUID();
        const text = 'x'.repeat((number * 997) % 3000);
        mails.push({ from: 'script', text, timestamp: new Date().toISOString(), read: false, msg_id: id, msgV: 1 });
        write(mails);
        fs.appendFileSync(log, `${id}\n`);
        await release();
    }
};

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
