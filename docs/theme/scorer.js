// How much a page counts in the search of the site: pages that help before those that tell why.
var Scorer = {
  score: ([page, , , , score]) => score * (PAGE_WEIGHTS.find(([start]) => page.startsWith(start)) || ["", 1])[1],
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
const PAGE_WEIGHTS = [
  ["docs/guide/troubleshooting", 5], ["docs/guide/first-study", 5], ["docs/guide/comparison", 1],
  ["docs/guide/", 4], ["docs/reference", 3], ["docs/index", 2], ["examples/", 2],
];
