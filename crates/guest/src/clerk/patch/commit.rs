//! Changing several files together: all of them, or none.
//!
//! New contents are written beside their files first. Then names are switched, one after the other, and what was there
//! before stays under another name until the last switch is done: a failure in the middle switches back.

use super::super::draft::{hidden_name, write_all};
use super::super::failure::{busy, problem};
use super::super::new_directories::NewDirectories;
use super::super::place::{Base, Last, Spot, is_same};
use super::{Action, Change};
use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, Stat, fchmod, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::CString;
use workroom_types::{Problem, RoomPath};

pub(super) fn commit(base: &Base, changes: &[Change]) -> Result<(), Problem> {
    let mut work = Work { base, made: NewDirectories::new(base), steps: Vec::new(), done: false };
    for change in changes {
        work.prepare(change)?;
    }
    for index in 0..work.steps.len() {
        work.switch(index)?;
    }
    work.done = true;
    Ok(())
}

/// What was begun. Dropped before it is done, it undoes what it did.
struct Work<'a> {
    base: &'a Base,
    /// Directories that were made for new files.
    made: NewDirectories<'a>,
    steps: Vec<Step<'a>>,
    done: bool,
}

struct Step<'a> {
    path: &'a RoomPath,
    spot: Spot,
    /// The new content, until the switch.
    new: Option<CString>,
    /// What was there before, since the switch.
    old: Option<CString>,
    /// What was there when the patch was planned.
    seen: Option<Stat>,
    switched: bool,
}

impl<'a> Work<'a> {
    fn prepare(&mut self, change: &'a Change) -> Result<(), Problem> {
        let path = &change.path;
        let (spot, seen) = match &change.action {
            Action::Create { .. } => {
                self.made.expect_above(path);
                (self.base.spot_with_parents(path, Last::Stay)?, None)
            }
            Action::Replace { seen, .. } | Action::Delete { seen } => {
                (self.base.spot(path, Last::Stay)?, Some(*seen))
            }
        };
        self.steps.push(Step { path, spot, new: None, old: None, seen, switched: false });
        let (content, mode) = match &change.action {
            Action::Create { content, mode } => (content, *mode),
            Action::Replace { content, seen } => (content, seen.st_mode & 0o777),
            Action::Delete { .. } => return Ok(()),
        };
        match self.steps.last_mut() {
            Some(step) => step.write(content, mode).map_err(|error| problem(error, path, "written")),
            None => Ok(()),
        }
    }

    fn switch(&mut self, index: usize) -> Result<(), Problem> {
        let step = &mut self.steps[index];
        step.switch().map_err(|error| match error {
            Errno::AGAIN | Errno::NOENT | Errno::EXIST => busy(step.path, "patched"),
            error => problem(error, step.path, "patched"),
        })
    }
}

impl Step<'_> {
    fn write(&mut self, content: &[u8], mode: u32) -> Result<(), Errno> {
        let name = hidden_name()?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.spot.dir, &name, flags, Mode::from_raw_mode(0o600))?;
        self.new = Some(name);
        fchmod(&file, Mode::from_raw_mode(mode))?;
        write_all(&file, content)
    }

    fn switch(&mut self) -> Result<(), Errno> {
        match (self.new.is_some(), self.seen.is_some()) {
            (true, true) => match self.put_new(RenameFlags::EXCHANGE) {
                Ok(()) => self.old = self.new.take(),
                // Some file systems cannot exchange; then there is a moment without the file.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    self.set_aside()?;
                    self.put_new(RenameFlags::NOREPLACE)?;
                    self.new = None;
                }
                Err(error) => return Err(error),
            },
            (true, false) => {
                self.put_new(RenameFlags::NOREPLACE)?;
                self.new = None;
            }
            (false, _) => self.set_aside()?,
        }
        match (&self.old, &self.seen) {
            (Some(old), Some(seen)) => {
                let was = statat(&self.spot.dir, old, AtFlags::SYMLINK_NOFOLLOW)?;
                // Written to since it was read: the patch was made for something else.
                let same = is_same(&was, seen)
                    && (was.st_size, was.st_mtime, was.st_mtime_nsec)
                        == (seen.st_size, seen.st_mtime, seen.st_mtime_nsec);
                if same { Ok(()) } else { Err(Errno::AGAIN) }
            }
            _ => Ok(()),
        }
    }

    fn put_new(&mut self, how: RenameFlags) -> Result<(), Errno> {
        let Some(new) = &self.new else { return Ok(()) };
        renameat_with(&self.spot.dir, new, &self.spot.dir, &self.spot.name, how)?;
        self.switched = true;
        Ok(())
    }

    fn set_aside(&mut self) -> Result<(), Errno> {
        let aside = hidden_name()?;
        renameat_with(&self.spot.dir, &self.spot.name, &self.spot.dir, &aside, RenameFlags::NOREPLACE)?;
        (self.old, self.switched) = (Some(aside), true);
        Ok(())
    }

    fn undo(&mut self) {
        let (dir, name) = (&self.spot.dir, &self.spot.name);
        if self.switched {
            let _ = match self.old.take() {
                Some(old) => renameat(dir, &old, dir, name),
                None => unlinkat(dir, name, AtFlags::empty()),
            };
        }
    }

    /// Removes what is left under other names.
    fn clear(&mut self) {
        for name in [self.new.take(), self.old.take()].into_iter().flatten() {
            let _ = unlinkat(&self.spot.dir, &name, AtFlags::empty());
        }
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        for step in self.steps.iter_mut().rev() {
            if !self.done {
                step.undo();
            }
            step.clear();
        }
        // Those that are not kept go after this, when they are empty again.
        if self.done {
            self.made.keep();
        }
    }
}
