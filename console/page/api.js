// What is asked of the console. An error is a sentence, to be shown where its answer would be.

export class Refused extends Error {
  constructor(code, text) {
    super(text);
    this.code = code;
  }
}

async function answer(request) {
  let response;
  try {
    response = await fetch(...request);
  } catch {
    throw new Refused("AWAY", "The console does not answer: it was stopped, or the way to it is cut.");
  }
  if (response.ok) return response.json();
  const isOurs = response.headers.get("content-type") === "application/json";
  if (!isOurs) throw new Refused(`HTTP_${response.status}`, (await response.text()).trim());
  const { code, text } = await response.json();
  throw new Refused(code, text);
}

/** Ask for something; `said` are its parameters, of which an array is given one by one. */
export function ask(what, said = {}) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(said)) {
    for (const one of [value].flat()) parameters.append(name, one);
  }
  return answer([`api/${what}?${parameters}`]);
}

/** Ask for a change. */
export function change(what, body) {
  const headers = { "Content-Type": "application/json" };
  return answer([`api/${what}`, { method: "POST", headers, body: JSON.stringify(body) }]);
}
