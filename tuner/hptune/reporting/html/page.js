"use strict";
// Shows complete trials alone, or the stopped ones as well, in every figure and table.
function show(choice) {
  document.body.className = choice + "-shown";
  for (const drawn of window.Bokeh ? Bokeh.documents : []) {
    for (const root of drawn.roots()) {
      for (const model of root.references()) {
        const tags = model.tags || [];
        if (tags.includes("complete-only") || tags.includes("with-pruned")) {
          model.visible = tags.includes(choice);
        }
      }
    }
  }
}
for (const button of document.querySelectorAll("#switch input")) {
  button.addEventListener("change", () => show(button.value));
}
// The texts of figures take their colours from the page when they are drawn.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const view of window.Bokeh ? Bokeh.index.roots : []) view.request_repaint?.();
});
