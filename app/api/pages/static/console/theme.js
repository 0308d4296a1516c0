try{let t=localStorage.getItem("plangate-theme");(t==="light"||t==="dark")&&(document.documentElement.dataset.theme=t)}catch{}
