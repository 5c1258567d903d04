//! How text looks: colours and attributes, and lines as runs of text of one style.

use serde::{Serialize, Serializer};
use unicode_width::UnicodeWidthChar;

/// Whether the blanks at the end of a line are part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blanks {
    Trim,
    Keep,
}

/// A colour as the program named it. In JSON a number for one of the palette, `"#rrggbb"` for its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// 0–7 the basic colours, 8–15 their bright forms, 16–255 the cube and the greys of xterm.
    Palette(u8),
    Rgb(u8, u8, u8),
}

impl Serialize for Color {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Color::Palette(index) => serializer.serialize_u8(index),
            Color::Rgb(red, green, blue) => {
                serializer.collect_str(&format_args!("#{red:02x}{green:02x}{blue:02x}"))
            }
        }
    }
}

/// What a program set with SGR. Only what differs from plain text is serialised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Style {
    #[serde(rename = "fg", skip_serializing_if = "Option::is_none")]
    pub foreground: Option<Color>,
    #[serde(rename = "bg", skip_serializing_if = "Option::is_none")]
    pub background: Option<Color>,
    #[serde(skip_serializing_if = "is_off")]
    pub bold: bool,
    #[serde(skip_serializing_if = "is_off")]
    pub faint: bool,
    #[serde(skip_serializing_if = "is_off")]
    pub italic: bool,
    #[serde(skip_serializing_if = "is_off")]
    pub underline: bool,
    #[serde(skip_serializing_if = "is_off")]
    pub blink: bool,
    #[serde(skip_serializing_if = "is_off")]
    pub inverse: bool,
    #[serde(skip_serializing_if = "is_off")]
    pub strikethrough: bool,
}

fn is_off(flag: &bool) -> bool {
    !flag
}

impl From<&avt::Pen> for Style {
    fn from(pen: &avt::Pen) -> Style {
        let color = |color| match color {
            avt::Color::Indexed(index) => Color::Palette(index),
            avt::Color::RGB(rgb) => Color::Rgb(rgb.r, rgb.g, rgb.b),
        };
        Style {
            foreground: pen.foreground().map(color),
            background: pen.background().map(color),
            bold: pen.is_bold(),
            faint: pen.is_faint(),
            italic: pen.is_italic(),
            underline: pen.is_underline(),
            blink: pen.is_blink(),
            inverse: pen.is_inverse(),
            strikethrough: pen.is_strikethrough(),
        }
    }
}

/// Text of one style, from a column on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Run {
    pub column: u16,
    pub text: String,
    #[serde(flatten)]
    pub style: Style,
}

/// One row of a screen, or of its history.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StyledLine {
    pub runs: Vec<Run>,
    /// The text goes on in the next row only because this one was full.
    #[serde(skip_serializing_if = "is_off")]
    pub wrapped: bool,
}

impl StyledLine {
    /// The text alone.
    pub fn text(&self) -> String {
        self.runs.iter().map(|run| run.text.as_str()).collect()
    }

    pub(crate) fn of(line: &avt::Line, blanks: Blanks) -> StyledLine {
        let mut styled = StyledLine { runs: Vec::new(), wrapped: line.is_wrapped() };
        let mut pen: Option<&avt::Pen> = None;
        for (column, cell) in line.cells().iter().enumerate() {
            // The second half of a wide character is no text of its own.
            if cell.width() == 0 {
                continue;
            }
            if pen != Some(cell.pen()) {
                pen = Some(cell.pen());
                styled.start_run(column, Style::from(cell.pen()));
            }
            if let Some(run) = styled.runs.last_mut() {
                run.text.push(cell.char());
            }
        }
        if blanks == Blanks::Trim {
            styled.trim();
        }
        styled
    }

    pub(crate) fn start_run(&mut self, column: usize, style: Style) {
        let column = u16::try_from(column).unwrap_or(u16::MAX);
        self.runs.push(Run { column, text: String::new(), style });
    }

    /// Takes away the blanks at the end that nothing marks: a blank with a background is something to see.
    fn trim(&mut self) {
        while let Some(last) = self.runs.last_mut()
            && last.style == Style::default()
            && !self.wrapped
        {
            last.text.truncate(last.text.trim_end_matches(' ').len());
            if !last.text.is_empty() {
                break;
            }
            self.runs.pop();
        }
    }
}

/// How many columns a character takes on the screen.
pub(crate) fn columns(character: char) -> usize {
    if character.is_ascii() { 1 } else { character.width().unwrap_or(1) }
}
