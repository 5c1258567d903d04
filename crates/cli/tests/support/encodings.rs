//! A text as the usual encoders write it.

use ::base64::Engine;
use ::base64::engine::general_purpose::STANDARD;

pub(crate) fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

pub(crate) fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn url(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}
