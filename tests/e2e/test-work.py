# SPDX-License-Identifier: GPL-2.0-or-later
"""Units of work: reported, kept, read back."""
import http.client
import json
import socket
import time

from harness import main


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def call(d, method, body):
    c = Connection(d.socket)
    c.request("POST", "/sysprofd.v1.ProfileService/" + method, json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    text = r.read()
    c.close()
    return r.status, json.loads(text)


def test_work_is_kept(t):
    d = t.daemon()
    for units in (3, 4):
        assert call(d, "PutWork", {"name": "requests", "labels": {"route": "a", "code": "200"}, "count": units})[0] == 200
    assert call(d, "PutWork", {"name": "rows", "count": "5000000000"})[0] == 200
    time.sleep(2.5)
    d.stop()
    d.start()
    code, answer = call(d, "ListBuckets", {"limit": 100})
    assert code == 200
    work = {}
    for b in answer["buckets"]:
        for w in b.get("work", []):
            work[w["name"]] = work.get(w["name"], 0) + int(w["units"])
    assert work == {'requests{code="200",route="a"}': 7, "rows": 5000000000}, work


def test_bad_reports_are_refused(t):
    d = t.daemon({"collect": {"bucket": "1min", "slice": "2s"}})
    for body in ({"name": "", "count": 1}, {"name": "a b", "count": 1}, {"name": "x" * 1000, "count": 1},
                 {"name": "x", "labels": {"k": "\n"}, "count": 1}, {"name": "x", "count": 1, "timeNs": "1000"}):
        code, answer = call(d, "PutWork", body)
        assert code == 400 and answer["code"] == "invalid_argument", (body, code, answer)
    # Twice the limit and some: a bucket may end in between.
    for i in range(600):
        code, answer = call(d, "PutWork", {"name": f"series_{i}", "count": 1})
        if code == 429:
            break
    assert code == 429, (i, code, answer)


main(__name__)
