"""Prints, as one JSON object, what the public Agent SDK reads of a session.

    read_session.py FOLDER SESSION_ID

CLAUDE_CONFIG_DIR says where sessions are.
"""

import json
import sys

from claude_agent_sdk import get_session_messages, list_sessions


def main() -> None:
    folder, session = sys.argv[1:]
    listed = [vars(info) for info in list_sessions(directory=folder)]
    messages = [
        {"type": message.type, "uuid": message.uuid, "message": message.message}
        for message in get_session_messages(session, directory=folder)
    ]
    json.dump({"listed": listed, "messages": messages}, sys.stdout, default=str)


if __name__ == "__main__":
    main()
