"""A tool server for countersign, with nothing but Python: python3 server.py [PORT]"""
import json, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

pages, done, lock = {1: "Open 9 to 5", 2: "Bread 3.50"}, {}, threading.Lock()

def page_get(ask):
    return {"content": pages.get(ask["arguments"]["id"], "There is no such page.")}

def page_save_preview(ask):  # changes nothing; what it returns as precondition comes back with the call
    page, old = ask["arguments"], pages.get(ask["arguments"]["id"])
    return {"lines": [f"page {page['id']}", f"- {old}", f"+ {page['text']}"], "precondition": {"text": old}}

def page_save(ask):
    page, key = ask["arguments"], ask["key"]
    if key not in done:  # the same call may come again, with the same key: it is done once
        old, promised = pages.get(page["id"]), ask["precondition"]
        if old != page["text"] and promised and promised["text"] != old:
            return {"content": "Not saved: the page has changed meanwhile.", "is_error": True}
        pages[page["id"]], done[key] = page["text"], {"content": f"Page {page['id']} is saved."}
    return done[key]

def pick_date(ask):  # called once, after a person has filled in the date
    return {"content": f"The date is {ask['arguments']['date']}."}

class Handler(BaseHTTPRequestHandler):
    tools = {"/page_get": page_get, "/page_save": page_save, "/page_save/preview": page_save_preview, "/pick_date": pick_date}

    def do_POST(self):
        ask = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with lock:
            answer = self.tools[self.path](ask | {"key": self.headers["Idempotency-Key"]}) if self.path in self.tools else None
        self.send_response(200 if answer else 404)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 9200), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
