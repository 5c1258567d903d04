//! Extended attributes: which are the overlay's own, which are the room's, and how each is carried from place to place.
//!
//! As root the overlay keeps its own under `trusted.overlay.`. Without privileges it keeps them under `user.overlay.`, and
//! what a room itself puts there is moved to `user.overlay.overlay.`.

use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;

/// Where the overlay keeps its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    Trusted,
    User,
}

/// What an attribute of a file in a layer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A directory that hides what is below it.
    Opaque,
    /// A directory that was moved here from elsewhere below.
    Redirect,
    /// The overlay's own note, which it does without, or which is wrong in a copy.
    Note,
    /// The room's own, under this name.
    Own(Vec<u8>),
}

const USER_OVERLAY: &[u8] = b"user.overlay.";
const TRUSTED_OVERLAY: &[u8] = b"trusted.overlay.";
const ESCAPED: &[u8] = b"user.overlay.overlay.";

impl Flavour {
    pub(crate) fn of(as_root: bool) -> Flavour {
        if as_root { Flavour::Trusted } else { Flavour::User }
    }

    fn prefix(self) -> &'static [u8] {
        match self {
            Flavour::Trusted => TRUSTED_OVERLAY,
            Flavour::User => USER_OVERLAY,
        }
    }

    pub(crate) fn opaque(self) -> Vec<u8> {
        [self.prefix(), b"opaque"].concat()
    }

    pub(crate) fn redirect(self) -> Vec<u8> {
        [self.prefix(), b"redirect"].concat()
    }

    /// What the attribute `name` of a file in a layer means.
    pub(crate) fn meaning(self, name: &[u8]) -> Meaning {
        if self == Flavour::User && name.starts_with(ESCAPED) {
            return Meaning::Own([USER_OVERLAY, &name[ESCAPED.len()..]].concat());
        }
        match name.strip_prefix(self.prefix()) {
            Some(b"opaque") => Meaning::Opaque,
            Some(b"redirect") => Meaning::Redirect,
            Some(_) => Meaning::Note,
            None if name.starts_with(b"user.") || is_acl(name) => Meaning::Own(name.to_vec()),
            None => Meaning::Note,
        }
    }

    /// Under which name a room's own attribute is kept in a layer.
    pub(crate) fn kept_as(self, own: &[u8]) -> Vec<u8> {
        match own.strip_prefix(USER_OVERLAY) {
            Some(rest) if self == Flavour::User => [ESCAPED, rest].concat(),
            _ => own.to_vec(),
        }
    }
}

fn is_acl(name: &[u8]) -> bool {
    matches!(name, b"system.posix_acl_access" | b"system.posix_acl_default")
}

/// From where to where attributes are carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carry {
    /// From a layer to a layer.
    Layer(Flavour),
    /// From what a room sees to a layer.
    IntoLayer(Flavour),
    /// From what a room sees to what a room sees.
    Seen,
}

impl Carry {
    fn name(self, name: &[u8]) -> Option<Vec<u8>> {
        match self {
            Carry::Layer(flavour) => (flavour.meaning(name) != Meaning::Note).then(|| name.to_vec()),
            Carry::IntoLayer(flavour) => is_own(name).then(|| flavour.kept_as(name)),
            Carry::Seen => is_own(name).then(|| name.to_vec()),
        }
    }
}

fn is_own(name: &[u8]) -> bool {
    name.starts_with(b"user.") || is_acl(name)
}

/// Copies attributes from one file or directory to another.
pub(crate) fn carry(from: BorrowedFd<'_>, to: BorrowedFd<'_>, how: Carry) -> io::Result<()> {
    for name in list(from)? {
        if let Some(kept) = how.name(&name)
            && let Some(value) = get(from, &name)?
        {
            set(to, &kept, &value)?;
        }
    }
    Ok(())
}

/// The names of all attributes; none where the file system has none.
pub(crate) fn list(file: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    // Most files have none, or the overlay's own few.
    let mut small = [0u8; 512];
    let listed = match flistxattr(file, &mut small) {
        Ok(length) => small[..length].to_vec(),
        Err(Errno::RANGE) => {
            let mut large = vec![0; 64 << 10];
            let length = flistxattr(file, &mut large[..])?;
            large.truncate(length);
            large
        }
        Err(Errno::OPNOTSUPP) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    Ok(listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

/// The value of an attribute, if it is there.
pub(crate) fn get(file: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; 256];
    loop {
        match fgetxattr(file, name, &mut value[..]) {
            Ok(length) => {
                value.truncate(length);
                return Ok(Some(value));
            }
            Err(Errno::RANGE) if value.len() < 64 << 10 => value.resize(64 << 10, 0),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

pub(crate) fn set(file: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> io::Result<()> {
    Ok(fsetxattr(file, name, value, XattrFlags::empty())?)
}

/// Whether a directory of a layer is more than its entries over those below it: one that hides them, or that was moved.
pub(crate) fn is_special(dir: BorrowedFd<'_>, flavour: Flavour) -> io::Result<bool> {
    Ok(get(dir, &flavour.opaque())?.is_some() || get(dir, &flavour.redirect())?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_overlays_and_what_is_the_rooms() {
        let (root, user) = (Flavour::Trusted, Flavour::User);
        assert_eq!(root.meaning(b"trusted.overlay.opaque"), Meaning::Opaque);
        assert_eq!(user.meaning(b"user.overlay.opaque"), Meaning::Opaque);
        assert_eq!(root.meaning(b"user.overlay.opaque"), Meaning::Own(b"user.overlay.opaque".to_vec()));
        assert_eq!(
            user.meaning(b"user.overlay.overlay.opaque"),
            Meaning::Own(b"user.overlay.opaque".to_vec())
        );
        assert_eq!(user.kept_as(b"user.overlay.opaque"), b"user.overlay.overlay.opaque");
        assert_eq!(root.kept_as(b"user.overlay.opaque"), b"user.overlay.opaque");
        assert_eq!(root.meaning(b"trusted.overlay.origin"), Meaning::Note);
        assert_eq!(user.meaning(b"user.overlay.impure"), Meaning::Note);
        assert_eq!(user.meaning(b"security.selinux"), Meaning::Note);
    }
}
