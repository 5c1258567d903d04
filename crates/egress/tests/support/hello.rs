//! ClientHellos, built byte by byte.

/// A ClientHello as clients send it, with these server names (none: no such extension).
pub fn client_hello(names: &[&[u8]]) -> Vec<u8> {
    let mut list = Vec::new();
    for name in names {
        list.push(0);
        list.extend_from_slice(&(name.len() as u16).to_be_bytes());
        list.extend_from_slice(name);
    }
    let mut extensions = vec![0x00, 0x17, 0, 0];
    if !names.is_empty() {
        extensions.extend_from_slice(&extension(0, &with_length(&list)));
    }
    extensions.extend_from_slice(&extension(0x002b, &[2, 3, 4]));
    handshake(&body(&extensions))
}

pub fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &with_length(content)].concat()
}

pub fn with_length(content: &[u8]) -> Vec<u8> {
    [&(content.len() as u16).to_be_bytes()[..], content].concat()
}

/// The inside of a ClientHello with these extensions.
pub fn body(extensions: &[u8]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.push(32);
    body.extend_from_slice(&[9; 32]);
    body.extend_from_slice(&with_length(&[0x13, 1, 0x13, 2]));
    body.extend_from_slice(&[1, 0]);
    body.extend_from_slice(&with_length(extensions));
    body
}

pub fn handshake(body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_be_bytes();
    record(&[&[1], &length[1..], body].concat())
}

pub fn record(content: &[u8]) -> Vec<u8> {
    [&[22, 3, 1][..], &with_length(content)].concat()
}
