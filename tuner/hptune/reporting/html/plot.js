// Draws the figures of a notebook's cell, or of a file with one figure.
for (const place of document.querySelectorAll(".hptune-plot:not([data-drawn])")) {
  place.dataset.drawn = "yes";
  const { data, shown } = JSON.parse(place.dataset.study);
  const study = hptuneTrials.studyOf(data);
  const chosen = { ...hptuneTrials.firstChoice(study, shown), isAlone: true };
  for (const figure of place.querySelectorAll("[data-figure]")) hptuneFigures.draw(figure, study, chosen);
  delete place.dataset.study;
}
