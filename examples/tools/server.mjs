// A tool server for countersign, with nothing but Node: node server.mjs [PORT]
import { createServer } from "node:http";

const pages = new Map([[1, "Open 9 to 5"], [2, "Bread 3.50"]]);
const done = new Map();

const tools = {
  "/page_get": ({ arguments: { id } }) => ({ content: pages.get(id) ?? "There is no such page." }),

  // Changes nothing; what it returns as precondition comes back with the call.
  "/page_save/preview": ({ arguments: { id, text } }) => {
    const old = pages.get(id) ?? null;
    return { lines: [`page ${id}`, `- ${old}`, `+ ${text}`], precondition: { text: old } };
  },

  "/page_save": ({ arguments: { id, text }, precondition }, key) => {
    if (done.has(key)) return done.get(key); // the same call may come again, with the same key: it is done once
    const old = pages.get(id) ?? null;
    if (old !== text && precondition && precondition.text !== old)
      return { content: "Not saved: the page has changed meanwhile.", is_error: true };
    pages.set(id, text);
    done.set(key, { content: `Page ${id} is saved.` });
    return done.get(key);
  },

  // Called once, after a person has filled in the date.
  "/pick_date": ({ arguments: { date } }) => ({ content: `The date is ${date}.` }),
};

const server = createServer(async (request, response) => {
  const tool = request.method === "POST" ? tools[request.url] : undefined;
  const parts = await request.toArray();
  const answer = tool?.(JSON.parse(Buffer.concat(parts)), request.headers["idempotency-key"]);
  response.writeHead(answer ? 200 : 404, { "content-type": "application/json" }).end(JSON.stringify(answer ?? {}));
});
server.listen(Number(process.argv[2] ?? 9200), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
