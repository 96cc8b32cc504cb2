// What is looked through is loaded with the first use of the search.
const root = document.documentElement.dataset.root;
const box = document.getElementById("search"), list = document.getElementById("found");
const loaded = () => window.loading ??= new Promise(done => {
  const script = document.createElement("script");
  script.src = `${root}search-index.js`;
  script.onload = done;
  document.head.append(script);
});

// A section has all words; those in headings weigh more, whole words twice.
function weighed([path, title, anchor, heading, text], words) {
  let sum = 0;
  for (const word of words) {
    const whole = new RegExp(`\\b${word.replace(/[^\p{L}\p{N}]/gu, "\\$&")}\\b`, "iu");
    const found = [[title, 6], [heading, 8], [text, 1]].map(([where, weight]) =>
      where.toLowerCase().includes(word) ? weight * (whole.test(where) ? 2 : 1) : 0);
    if (!found.some(Boolean)) return 0;
    sum += found.reduce((a, b) => a + b);
  }
  return sum;
}

async function search() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  list.hidden = !words.length;
  if (list.hidden) return;
  await loaded();
  const found = PARTS.map(part => [weighed(part, words), part]).filter(([weight]) => weight)
    .sort((a, b) => b[0] - a[0]).slice(0, 20);
  list.replaceChildren(...found.map(([, [path, title, anchor, heading, text]]) => {
    const item = document.createElement("li"), link = document.createElement("a");
    link.href = root + path + (anchor && `#${anchor}`);
    link.textContent = heading === title ? title : `${title}: ${heading}`;
    const near = Math.max(0, text.toLowerCase().indexOf(words[0]) - 60);
    const told = document.createElement("p");
    told.textContent = (near ? "... " : "") + text.slice(near, near + 180);
    item.append(link, told);
    return item;
  }));
  if (!found.length) list.textContent = "Nothing has all of these words.";
}
box.addEventListener("input", search);
