// Every way that a page has to take something in from elsewhere. Each tells what it got; run in a page of the place
// itself, every one of them gets it.
(() => {
  const patience = 10_000;
  const first = (...events) => new Promise((resolve, reject) => {
    events.forEach(([target, name, take]) => target.addEventListener(name, event => {
      try { resolve(take(event)); } catch (error) { reject(error); }
    }, { once: true }));
    setTimeout(() => resolve('nothing came'), patience);
  });
  const element = (name, attributes) => Object.assign(document.createElement(name), attributes);
  const put = node => document.body.appendChild(node);
  const loading = (node, take) => {
    const done = first([node, 'load', take], [node, 'error', () => 'an error']);
    put(node);
    return done;
  };
  const pause = time => new Promise(on => setTimeout(on, time));
  const inner = window => {
    // Over plain HTTP two pages may agree to be one; this one is not asked to.
    try { if (isSecureContext) document.domain = location.hostname.split('.').slice(1).join('.'); } catch (error) { /* It is as it is. */ }
    return window.document.body.innerText;
  };

  const ways = {
    fetch: url => fetch(url + 'x', { credentials: 'include' }).then(answer => answer.text()),
    fetch_without_cors: url => fetch(url + 'x', { credentials: 'include', mode: 'no-cors' }).then(answer => answer.text()),
    fetch_with_a_header: url => fetch(url + 'x', { credentials: 'include', headers: { 'x-mine': '1' } }).then(answer => answer.text()),
    fetch_that_posts: url => fetch(url + 'x', { method: 'POST', body: 'x', credentials: 'include' }).then(answer => answer.text()),
    fetch_by_way_of_here: url => fetch('/away?' + url + 'x', { credentials: 'include' }).then(answer => answer.text()),
    request: url => {
      const request = new XMLHttpRequest();
      request.open('GET', url + 'x');
      request.withCredentials = true;
      const done = first([request, 'loadend', () => request.responseText]);
      request.send();
      return done;
    },
    stream: url => fetch(url + 'stream', { credentials: 'include' }).then(answer => answer.text()),
    events: url => {
      const source = new EventSource(url + 'events', { withCredentials: true });
      return first([source, 'message', event => event.data], [source, 'error', () => 'an error']).finally(() => source.close());
    },
    websocket: url => {
      const socket = new WebSocket(url.replace('http', 'ws') + 'socket');
      return first([socket, 'message', event => event.data], [socket, 'close', () => 'closed']).finally(() => socket.close());
    },
    script: url => { delete window.of_script; return loading(element('script', { src: url + 'script.js' }), () => window.of_script); },
    module: url => { delete window.of_script; return loading(element('script', { src: url + 'script.js', type: 'module', crossOrigin: 'use-credentials' }), () => window.of_script); },
    style: url => loading(element('link', { rel: 'stylesheet', href: url + 'style.css' }), () => getComputedStyle(document.body).getPropertyValue('--of-style')),
    picture: url => { const picture = element('img', { src: url + 'picture.svg' }); return loading(picture, () => picture.naturalWidth === 77 ? SECRET : 'another picture'); },
    // Before those that change what this page is.
    object: url => { const object = element('object', { data: url + 'x', type: 'text/plain' }); return loading(object, () => object.contentDocument.body.innerText); },
    frame: url => { const frame = element('iframe', { src: url + 'framed' }); return loading(frame, () => inner(frame.contentWindow)); },
    frame_that_tells: url => {
      const frame = element('iframe', { src: url + 'framed' });
      const told = first([window, 'message', event => event.data]);
      const silent = loading(frame, () => pause(500)).then(() => 'nothing told');
      return Promise.race([told, silent]);
    },
    // A person may be led to a place. What is there, they alone see.
    window: async url => {
      const here = new Promise(on => {
        window.addEventListener('message', event => event.data === 'here' && on('here'));
        pause(patience).then(() => on('nothing came'));
      });
      const opened = window.open(url + 'opened');
      const said = await here;
      try { return said === 'here' ? inner(opened) : said; } finally { opened.close(); }
    },
    worker: url => first([new Worker('/asker.js?' + encodeURIComponent(url + 'x')), 'message', event => event.data]),
  };
  return (async () => {
    const got = {};
    // One after the other: what one has taken in is not to be what another got.
    for (const [name, way] of Object.entries(ways)) {
      try { got[name] = String(await way(PLACE)); } catch (error) { got[name] = String(error); }
    }
    return got;
  })();
})()
