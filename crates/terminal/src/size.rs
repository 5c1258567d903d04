//! The size of a terminal, and the bounds within which we model one.

use serde::{Deserialize, Serialize};

/// Columns and rows of a terminal: 20–500 by 10–200.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Size {
    cols: u16,
    rows: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a terminal of {cols}x{rows} is not supported; use {}–{} columns and {}–{} rows",
    Size::MIN.cols, Size::MAX.cols, Size::MIN.rows, Size::MAX.rows
)]
pub struct SizeError {
    pub cols: u16,
    pub rows: u16,
}

#[derive(Deserialize)]
struct Unchecked {
    cols: u16,
    rows: u16,
}

impl Size {
    pub const MIN: Size = Size { cols: 20, rows: 10 };
    pub const MAX: Size = Size { cols: 500, rows: 200 };

    pub fn new(cols: u16, rows: u16) -> Result<Size, SizeError> {
        let size = Size { cols, rows };
        if size == Size::nearest(cols, rows) { Ok(size) } else { Err(SizeError { cols, rows }) }
    }

    /// The supported size that is nearest to the one wanted: for sizes that somebody else has decided, such as those
    /// in a recording.
    pub fn nearest(cols: u16, rows: u16) -> Size {
        Size {
            cols: cols.clamp(Size::MIN.cols, Size::MAX.cols),
            rows: rows.clamp(Size::MIN.rows, Size::MAX.rows),
        }
    }

    pub fn cols(self) -> u16 {
        self.cols
    }

    pub fn rows(self) -> u16 {
        self.rows
    }
}

impl Default for Size {
    fn default() -> Size {
        Size { cols: 80, rows: 24 }
    }
}

impl TryFrom<Unchecked> for Size {
    type Error = SizeError;

    fn try_from(size: Unchecked) -> Result<Size, SizeError> {
        Size::new(size.cols, size.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_outside_the_bounds_are_refused_with_the_bounds() {
        for (cols, rows) in [(19, 24), (501, 24), (80, 9), (80, 201), (0, 0)] {
            let error = Size::new(cols, rows).expect_err("out of bounds");
            assert_eq!(
                error.to_string(),
                format!("a terminal of {cols}x{rows} is not supported; use 20–500 columns and 10–200 rows")
            );
        }
        assert!(Size::new(20, 10).is_ok() && Size::new(500, 200).is_ok());
        assert_eq!(Size::nearest(0, 9999), Size::new(20, 200).expect("in bounds"));
    }

    #[test]
    fn a_size_that_is_read_is_checked_too() {
        assert!(serde_json::from_str::<Size>(r#"{"cols":80,"rows":24}"#).is_ok());
        assert!(serde_json::from_str::<Size>(r#"{"cols":8000,"rows":24}"#).is_err());
    }
}
