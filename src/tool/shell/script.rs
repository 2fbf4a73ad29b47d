//! The script around a shell command that remembers in which folder the command left its shell.
//!
//! The shell itself writes that into a file of the call, when the command has come to its end or, by
//! `trap`, when `exit` or `set -e` ended it before. Not by a descriptor, which what the command leaves
//! in the background would inherit, nor among the output, which the command could forge. Where the
//! shell does not get to it, the folder counts as unchanged: after `exec` and SIGKILL, and when the
//! command set a trap of its own on EXIT and then left by `exit`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// The arguments of a shell that runs `command` and writes its last folder to `file`; works in bash and
/// in any POSIX shell. None if the path is no text.
pub(in crate::tool) fn remembering(command: &str, file: &Path, shell: &Path) -> Option<Vec<String>> {
    let file = quoted(file.to_str()?);
    // In a shell of its own, which the command's `set -e`, `ulimit` and traps don't reach; the redirection
    // around it hides what `set -x` would show. `>|` writes under `set -C` too.
    let record = format!("{{ [ -e {file} ] || (command pwd -P >| {file}); }} 2>/dev/null || :");
    let trap = quoted(&record);
    // All before the command stands on its first line, so that line numbers in messages are true. The
    // command comes as an argument, and has none itself; it comes first, so that lists of processes show
    // it and not what stands around it.
    let script = format!(
        "trap -- {trap} EXIT; eval \"set --;$1\"\n{{ set -- \"$?\"; set +x; }} 2>/dev/null\n{record}\nexit \"$1\""
    );
    let name = shell.file_name().map_or_else(|| "sh".to_owned(), |name| name.to_string_lossy().into_owned());
    Some(vec!["-c".to_owned(), "eval \"$2\"".to_owned(), name, command.to_owned(), script])
}

/// What the shell wrote into `file`, which is removed.
pub(in crate::tool) fn recorded(file: &Path) -> Option<PathBuf> {
    let bytes = fs::read(file).ok()?;
    let _ = fs::remove_file(file);
    let path = bytes.strip_suffix(b"\n")?;
    let folder = PathBuf::from(OsString::from_vec(path.to_vec()));
    (folder.is_absolute() && !folder.as_os_str().as_bytes().contains(&0)).then_some(folder)
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Runs a command in `dir`; its exit code, output, and folder at the end.
    fn run(shell: &str, dir: &Path, command: &str) -> (Option<i32>, String, Option<PathBuf>) {
        // A name that has to be quoted.
        let file = dir.join("it's the folder");
        let args = remembering(command, &file, Path::new(shell)).unwrap();
        let mut process = Command::new(shell);
        process.args(args).current_dir(dir).stdin(Stdio::null());
        // Whoever runs the tests may have variables of ours.
        process.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        let output = process.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let found = recorded(&file);
        assert!(!file.exists());
        (output.status.code(), String::from_utf8_lossy(&text).into_owned(), found)
    }

    fn shells() -> Vec<&'static str> {
        ["bash", "dash", "sh"].into_iter().filter(|shell| which::which(shell).is_ok()).collect()
    }

    #[test]
    fn the_last_folder_is_remembered_however_the_command_ends() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let sub = top.join("sub");
        fs::create_dir(&sub).unwrap();
        for shell in shells() {
            for (command, code, end) in [
                ("cd sub", 0, Some(&sub)),
                ("cd sub; false", 1, Some(&sub)),
                ("cd sub; exit 3", 3, Some(&sub)),
                ("set -e; cd sub; false; cd ..", 1, Some(&sub)),
                ("set -eu; set -C; cd sub; : $nope", if shell == "bash" { 1 } else { 2 }, Some(&sub)),
                ("cd sub; exec >&- 2>&-", 0, Some(&sub)),
                ("cd sub; trap 'cd /' EXIT", 0, Some(&sub)),
                ("f() { cd sub; return 5; }; f", 5, Some(&sub)),
                ("cd sub\nif", 2, Some(&sub)),
                ("(cd sub; exit 3)", 3, Some(&top)),
                ("cd sub | cat", 0, Some(&top)),
                ("if", 2, Some(&top)),
                ("# nothing", 0, Some(&top)),
                ("cd nowhere", if shell == "bash" { 1 } else { 2 }, Some(&top)),
                ("IFS=0123; cd sub; (exit 4)", 4, Some(&sub)),
                ("cd sub; exec true", 0, None),
                ("cd sub; trap 'true' EXIT; exit 6", 6, None),
                ("mkdir gone; cd gone; rmdir ../gone", 0, None),
            ] {
                let (exit, text, found) = run(shell, &top, command);
                assert_eq!((exit, found.as_ref()), (Some(code), end), "{shell}: {command}: {text}");
            }
        }
    }

    #[test]
    fn the_command_sees_nothing_of_it() {
        let dir = tempfile::tempdir().unwrap();
        for (command, output) in [
            ("echo \"$#,$1,$0\"; set -- a b; echo $#", "0,,bash\n2\n"),
            ("set -x; true", "+++ true\n"),
            ("printf '%s\\n' \"it's\" '$HOME' \\\\", "it's\n$HOME\n\\\n"),
            ("cat <<X\n$((1 + 1)) 'q' `echo b`\nX", "2 'q' b\n"),
            ("echo 1\nno-such-program", "1\nbash: line 2: no-such-program: command not found\n"),
            ("declare -F; compgen -v | grep -i lead; echo \"$-\"", "hBc\n"),
        ] {
            assert_eq!(run("bash", dir.path(), command).1, output, "{command}");
        }
        let (code, text, _) = run("bash", dir.path(), "ulimit -f 0; exit 7");
        assert_eq!((code, text.as_str()), (Some(7), ""), "a limit of the command is not the script's");
    }

    #[test]
    fn what_is_no_folder_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        for content in ["", "relative\n", "/no/newline", "/with\0nul\n"] {
            fs::write(&file, content).unwrap();
            assert_eq!(recorded(&file), None, "{content:?}");
        }
        fs::write(&file, "/a\nb\n").unwrap();
        assert_eq!(recorded(&file), Some("/a\nb".into()));
    }
}
