// Follow Airflow's theme: that of the page around this one, else what Airflow keeps in this browser.
"use strict";
(() => {
  const own = document.documentElement;
  const choose = () => {
    let theme = null;
    try {
      const around = window.parent !== window ? window.parent.document.documentElement : null;
      if (around?.classList.contains("dark")) theme = "dark";
      else if (around?.classList.contains("light")) theme = "light";
      theme ??= localStorage.getItem("theme");
    } catch {
      // Neither is there for a page of another origin: then the system's own setting counts.
    }
    if (theme === "dark" || theme === "light") own.dataset.theme = theme;
    else delete own.dataset.theme;
  };
  choose();
  addEventListener("storage", choose);
  try {
    if (window.parent !== window) {
      new MutationObserver(choose).observe(window.parent.document.documentElement, {
        attributes: true,
        attributeFilter: ["class"],
      });
    }
  } catch {
    // As above.
  }
})();
