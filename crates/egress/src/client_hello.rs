//! The name that a TLS client asks for: the server name in its ClientHello.

/// Handshakes of real clients have two kilobytes at most; servers take no more than this either.
pub(crate) const LONGEST_HELLO: usize = 32 * 1024;

const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const LONGEST_RECORD: usize = 16 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub enum Hello {
    /// The first byte is not that of a handshake.
    NotTls,
    NeedsMore,
    /// A whole ClientHello, with the name that it asks for, as the client wrote it.
    Complete {
        server_name: Option<Vec<u8>>,
    },
    Malformed(&'static str),
}

/// Reads the start of what a client sends.
pub fn read(bytes: &[u8]) -> Hello {
    match bytes.first() {
        None => return Hello::NeedsMore,
        Some(&HANDSHAKE_RECORD) => {}
        Some(_) => return Hello::NotTls,
    }
    let message = match handshake_bytes(bytes) {
        Ok(message) => message,
        Err(why) => return Hello::Malformed(why),
    };
    let Some((&kind, rest)) = message.split_first() else { return Hello::NeedsMore };
    if kind != CLIENT_HELLO {
        return Hello::Malformed("the TLS handshake does not begin with a ClientHello");
    }
    let Some(length) = rest.first_chunk::<3>() else { return Hello::NeedsMore };
    let length = u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize;
    if length > LONGEST_HELLO {
        return Hello::Malformed("the ClientHello is longer than 32 KiB");
    }
    match rest[3..].get(..length) {
        Some(body) => match server_name(body) {
            Ok(server_name) => Hello::Complete { server_name },
            Err(why) => Hello::Malformed(why),
        },
        None if bytes.len() >= LONGEST_HELLO => Hello::Malformed("the ClientHello is longer than 32 KiB"),
        None => Hello::NeedsMore,
    }
}

/// What the handshake records that are there carry together: a message may go over several records.
fn handshake_bytes(mut bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut message = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<5>() {
        let [kind, major, _, high, low] = *header;
        if kind != HANDSHAKE_RECORD {
            return Err("the TLS handshake breaks off in the middle of the ClientHello");
        }
        if major != 3 {
            return Err("the TLS record has an unknown version");
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length == 0 || length > LONGEST_RECORD {
            return Err("the TLS record has an impossible length");
        }
        let part = &rest[..rest.len().min(length)];
        message.extend_from_slice(part);
        bytes = &rest[part.len()..];
        // What follows a whole ClientHello (early data, anything) is not looked at.
        if part.len() < length || holds_a_message(&message) {
            break;
        }
    }
    Ok(message)
}

fn holds_a_message(message: &[u8]) -> bool {
    match message.first_chunk::<4>() {
        Some(&[_, a, b, c]) => message.len() - 4 >= u32::from_be_bytes([0, a, b, c]) as usize,
        None => false,
    }
}

/// A reader that never goes beyond what is there.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or("the ClientHello is cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, &'static str> {
        Ok(self.take(1)?[0])
    }

    fn short(&mut self) -> Result<u16, &'static str> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn with_byte_length(&mut self) -> Result<&'a [u8], &'static str> {
        let length = self.byte()?;
        self.take(length.into())
    }

    fn with_short_length(&mut self) -> Result<&'a [u8], &'static str> {
        let length = self.short()?;
        self.take(length.into())
    }
}

fn server_name(body: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let mut hello = Reader(body);
    let _version_and_random = hello.take(2 + 32)?;
    let _session = hello.with_byte_length()?;
    let _ciphers = hello.with_short_length()?;
    let _compressions = hello.with_byte_length()?;
    if hello.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = Reader(hello.with_short_length()?);
    if !hello.0.is_empty() {
        return Err("the ClientHello goes on behind its end");
    }
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.short()?;
        let content = extensions.with_short_length()?;
        if kind == SERVER_NAME {
            // Of two names the server might take the other one.
            if found.is_some() {
                return Err("the ClientHello has two server names");
            }
            found = Some(only_name(content)?);
        }
    }
    Ok(found)
}

fn only_name(content: &[u8]) -> Result<Vec<u8>, &'static str> {
    const HOST_NAME: u8 = 0;
    let mut outer = Reader(content);
    let mut list = Reader(outer.with_short_length()?);
    if !outer.0.is_empty() {
        return Err("the server name goes on behind its end");
    }
    if list.byte()? != HOST_NAME {
        return Err("the server name is of an unknown kind");
    }
    let name = list.with_short_length()?;
    if !list.0.is_empty() {
        return Err("the ClientHello has two server names");
    }
    Ok(name.to_vec())
}
