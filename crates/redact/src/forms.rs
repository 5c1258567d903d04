//! How a secret looks in output: as it is, and as the usual encoders write it.
//!
//! A form is a string of bytes that gives the secret away. All are made when a set of secrets is compiled, so
//! that looking for them is looking for bytes and nothing else.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use zeroize::Zeroizing;

/// Shorter values are not looked for: two or three bytes are everywhere, and a text with each of them replaced
/// is of no use to anybody. It also keeps `[REDACTED:…]` from taking up much more than what it stands for.
pub const SHORTEST: usize = 4;

/// Fewer characters of base64 than this are as likely to be somebody else's: one place in 2^24 would do for four.
const SHORTEST_CORE: usize = 6;

/// Where encoders break their lines: 76 is MIME's and that of `base64`, 64 that of PEM and `openssl`.
const BASE64_LINES: [usize; 2] = [76, 64];

/// `xxd -p`.
const HEX_LINE: usize = 60;

/// What is longer is looked for section by section. So no more than this is held back of a stream, a comparison is
/// never longer, whatever a text repeats, and of a long secret also a part is recognised.
pub(crate) const SECTION: usize = 1024;

/// A form, wiped when it goes.
type Form = Zeroizing<Vec<u8>>;

/// What is looked for: a form, or a section of a long one.
pub(crate) struct Pattern {
    pub(crate) bytes: Form,
    /// Not the first section: where it follows on another it is not a second occurrence.
    pub(crate) continues: bool,
}

/// All patterns of a value; none for one that is too short.
pub(crate) fn patterns(value: &[u8]) -> Vec<Pattern> {
    let sections = |form: Form| -> Vec<Pattern> {
        if form.len() <= SECTION {
            return vec![Pattern { bytes: form, continues: false }];
        }
        let starts = (0..form.len()).step_by(SECTION);
        let section = |start: usize| {
            // The last one is as long as the others, and overlaps with the one before.
            let start = start.min(form.len() - SECTION);
            let bytes = Zeroizing::new(form[start..start + SECTION].to_vec());
            Pattern { bytes, continues: start > 0 }
        };
        starts.map(section).collect()
    };
    forms(value).into_iter().flat_map(sections).collect()
}

/// Every form of a value. Whitespace around it is no part of the secret: files
/// and `echo` end in a newline that a program which prints the value has cut off.
fn forms(value: &[u8]) -> Vec<Form> {
    let value = value.trim_ascii();
    if value.len() < SHORTEST {
        return Vec::new();
    }
    let mut forms = vec![Zeroizing::new(value.to_vec())];
    // What a terminal makes of line ends.
    forms.push(with_line_ends(value));
    forms.extend(JSON_FLAVOURS.iter().map(|flavour| json(value, flavour)));
    forms.extend(hex(value));
    forms.extend(base64(value));
    for flavour in &URL_FLAVOURS {
        forms.extend([url(value, flavour, UPPER), url(value, flavour, LOWER)]);
    }
    forms.sort_unstable_by(|one, other| one.as_slice().cmp(other));
    forms.dedup();
    forms
}

const UPPER: &[u8; 16] = b"0123456789ABCDEF";
const LOWER: &[u8; 16] = b"0123456789abcdef";

fn with_line_ends(value: &[u8]) -> Form {
    let mut form = Zeroizing::new(Vec::with_capacity(value.len() * 2));
    for (at, &byte) in value.iter().enumerate() {
        if byte == b'\n' && (at == 0 || value[at - 1] != b'\r') {
            form.push(b'\r');
        }
        form.push(byte);
    }
    form
}

fn hex(value: &[u8]) -> Vec<Form> {
    let digits = |digits: &[u8; 16]| -> Form {
        let pairs =
            value.iter().flat_map(|&byte| [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]);
        let mut form = Zeroizing::new(Vec::with_capacity(value.len() * 2));
        form.extend(pairs);
        form
    };
    let lower = digits(LOWER);
    let mut forms = in_lines(&lower, HEX_LINE);
    forms.extend([lower, digits(UPPER)]);
    forms
}

/// The value alone, and the value somewhere in what was encoded: then it begins at one of three places of a group
/// of three bytes, and the characters at its borders mix its bits with those of its neighbours. These stay; they
/// hold at most four bits of the secret at each side.
fn base64(value: &[u8]) -> Vec<Form> {
    let mut forms = Vec::new();
    for before in 0..3 {
        let mut bytes = Zeroizing::new(vec![0; before]);
        bytes.reserve_exact(value.len());
        bytes.extend_from_slice(value);
        let bits = bytes.len() * 8;
        let first = (before * 8).div_ceil(6);
        for engine in [&STANDARD, &URL_SAFE] {
            let text = Zeroizing::new(engine.encode(&*bytes).into_bytes());
            let cut = |end: usize| Zeroizing::new(text[first..end].to_vec());
            // Whatever follows it; the end of the text without padding; with padding.
            let (core, bare, padded) = (bits / 6, bits.div_ceil(6), text.len());
            for end in [core, bare, padded] {
                let whole = before == 0 && end > core;
                if end - first >= SHORTEST_CORE || whole {
                    forms.push(cut(end));
                }
            }
            if before == 0 {
                for width in BASE64_LINES {
                    for end in [core, bare, padded] {
                        forms.extend(in_lines(&text[..end], width));
                    }
                }
            }
        }
    }
    forms
}

/// The same over several lines, as programs and as terminals end them; nothing if it fits into one.
fn in_lines(text: &[u8], width: usize) -> Vec<Form> {
    if text.len() <= width {
        return Vec::new();
    }
    let broken = |end: &[u8]| {
        let mut form = Zeroizing::new(Vec::with_capacity(text.len() + (text.len() / width + 1) * end.len()));
        for (number, line) in text.chunks(width).enumerate() {
            if number > 0 {
                form.extend_from_slice(end);
            }
            form.extend_from_slice(line);
        }
        form
    };
    vec![broken(b"\n"), broken(b"\r\n")]
}

/// Which bytes a library leaves as they are beside letters and digits, and what becomes of a space.
struct UrlFlavour {
    kept: &'static [u8],
    space: &'static [u8],
}

const URL_FLAVOURS: [UrlFlavour; 8] = [
    // RFC 3986 to the letter: curl, PHP's rawurlencode, Python's quote with nothing safe.
    UrlFlavour { kept: b"-._~", space: b"%20" },
    // Python's quote.
    UrlFlavour { kept: b"-._~/", space: b"%20" },
    // JavaScript's encodeURIComponent and encodeURI.
    UrlFlavour { kept: b"-._~!'()*", space: b"%20" },
    UrlFlavour { kept: b"-._~!'()*;,/?:@&=+$#", space: b"%20" },
    // Path segments as Go writes them.
    UrlFlavour { kept: b"-._~$&+=:@", space: b"%20" },
    // Forms: Python's quote_plus and Go's QueryEscape; browsers and Java; PHP's urlencode.
    UrlFlavour { kept: b"-._~", space: b"+" },
    UrlFlavour { kept: b"-._*", space: b"+" },
    UrlFlavour { kept: b"-._", space: b"+" },
];

fn url(value: &[u8], flavour: &UrlFlavour, digits: &[u8; 16]) -> Form {
    let mut form = Zeroizing::new(Vec::with_capacity(value.len() * 3));
    for &byte in value {
        match byte {
            b' ' => form.extend_from_slice(flavour.space),
            _ if byte.is_ascii_alphanumeric() || flavour.kept.contains(&byte) => form.push(byte),
            _ => form.extend([b'%', digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]),
        }
    }
    form
}

/// What a library escapes in JSON strings beyond what it must.
struct JsonFlavour {
    slash: bool,
    /// `<`, `>` and `&`, for the sake of HTML.
    html: bool,
    beyond_ascii: bool,
}

const JSON_FLAVOURS: [JsonFlavour; 4] = [
    JsonFlavour { slash: false, html: false, beyond_ascii: false },
    // Go; Python; PHP.
    JsonFlavour { slash: false, html: true, beyond_ascii: false },
    JsonFlavour { slash: false, html: false, beyond_ascii: true },
    JsonFlavour { slash: true, html: false, beyond_ascii: true },
];

/// The inside of a JSON string. Bytes that are no text stay as they are.
fn json(value: &[u8], flavour: &JsonFlavour) -> Form {
    let mut form = Zeroizing::new(Vec::with_capacity(value.len() * 6));
    for piece in value.utf8_chunks() {
        for character in piece.valid().chars() {
            let short = match character {
                '"' => Some(b'"'),
                '\\' => Some(b'\\'),
                '\n' => Some(b'n'),
                '\r' => Some(b'r'),
                '\t' => Some(b't'),
                '\u{8}' => Some(b'b'),
                '\u{c}' => Some(b'f'),
                '/' if flavour.slash => Some(b'/'),
                _ => None,
            };
            let long = character < ' '
                || (flavour.html && matches!(character, '<' | '>' | '&'))
                || (flavour.beyond_ascii && !character.is_ascii());
            if let Some(letter) = short {
                form.extend([b'\\', letter]);
            } else if long {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let nibble = |place: u32| LOWER[usize::from(*unit >> (place * 4) & 15)];
                    form.extend([b'\\', b'u', nibble(3), nibble(2), nibble(1), nibble(0)]);
                }
            } else {
                form.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        form.extend_from_slice(piece.invalid());
    }
    form
}
