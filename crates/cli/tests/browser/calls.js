// Every way that a page has to call the API, with a token in hand that opens everything. Each tells what it got; run in a
// page of the API's own, every one of them is answered.
(async () => {
  const url = path => API + path;
  const authorization = 'Bearer ' + TOKEN;
  const text = answer => answer.then(it => it.text());
  const inner = path => new Promise((on, off) => {
    const frame = document.createElement('iframe');
    frame.onload = () => { try { on(frame.contentWindow.document.body.innerText); } catch (error) { off(error); } };
    frame.src = url(path);
    document.body.append(frame);
  });
  const made = JSON.stringify({ start: false });
  const calls = {
    open: () => text(fetch(url('/v1/openapi.json'))),
    open_without_cors: () => text(fetch(url('/v1/openapi.json'), { mode: 'no-cors' })),
    open_with_cookies: () => text(fetch(url('/v1/openapi.json'), { credentials: 'include' })),
    open_in_a_frame: () => inner('/v1/openapi.json'),
    with_a_token: () => text(fetch(url('/v1/sessions'), { headers: { authorization } })),
    that_makes: () => text(fetch(url('/v1/sessions'), { method: 'POST', body: made, headers: { authorization, 'content-type': 'application/json' } })),
    that_makes_unasked: () => text(fetch(url('/v1/sessions'), { method: 'POST', body: made, mode: 'no-cors' })),
    that_stops: () => text(fetch(url('/v1/sessions/' + SESSION + '/stop'), { method: 'POST', headers: { authorization } })),
  };
  const got = {};
  for (const [name, call] of Object.entries(calls)) {
    try { got[name] = await call(); } catch (error) { got[name] = String(error); }
  }
  return got;
})()
