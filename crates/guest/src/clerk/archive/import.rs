//! Taking an archive in: every member is checked before any of it is at the destination.

use super::super::draft::Draft;
use super::super::failure::problem;
use super::super::new_directories::NewDirectories;
use super::super::place::{Base, Last};
use super::codec::{self, Meter, Packing, Unpacked};
use super::member::{Kind, Member, fault};
use super::stage::Stage;
use super::tar::Tar;
use super::zip::Zip;
use rustix::fs::{Mode, mkdirat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use workroom_types::{ArchiveCaps, Imported, Problem, RoomPath, Stripped, UploadRules, format_bytes};

/// Unpacks what comes from a pipe into a directory, which is made if it is not there.
pub(crate) fn import(
    base: &Base,
    at: &RoomPath,
    caps: ArchiveCaps,
    rules: &UploadRules,
    pipe: OwnedFd,
) -> Result<Imported, Problem> {
    let mut made = NewDirectories::new(base);
    let destination = destination(base, at, &mut made)?;
    let spool = destination.try_clone().map_err(fault)?;
    let input = super::waiting(pipe, at)?;
    let meter = Meter::new(caps);
    let (packing, source) = codec::recognise(input, &meter)?;
    let taking = Taking {
        stage: Stage::new(destination, at)?,
        caps,
        rules,
        files: 0,
        imported: Imported { destination: at.shown(), ..Imported::default() },
    };
    let imported = if packing == Packing::Zip {
        let spool = Draft::new(spool.as_fd()).map_err(|error| problem(error, at, "written to"))?;
        let file = spool.file().try_clone().map_err(fault)?;
        taking.zip(source, File::from(file), &meter)?
    } else {
        taking.tar(Tar::new(codec::unpack(packing, source, &meter)?, caps.entries.saturating_mul(3)))?
    };
    made.keep();
    Ok(imported)
}

fn destination(base: &Base, at: &RoomPath, made: &mut NewDirectories<'_>) -> Result<OwnedFd, Problem> {
    if at.is_top() {
        return base.open_directory(at);
    }
    made.expect_above(at);
    made.expect(at);
    let spot = base.spot_with_parents(at, Last::Follow)?;
    if spot.thing.is_none() {
        match mkdirat(&spot.dir, &spot.name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(problem(error, at, "made")),
        }
    }
    base.open_directory(at)
}

/// An archive on its way in.
struct Taking<'a> {
    stage: Stage<'a>,
    caps: ArchiveCaps,
    /// The operator's, which the server asks before everything else that comes in.
    rules: &'a UploadRules,
    files: u64,
    imported: Imported,
}

impl Taking<'_> {
    fn tar(mut self, mut tar: Tar<impl Read>) -> Result<Imported, Problem> {
        while let Some(member) = tar.next()? {
            self.member(&member, &mut tar)?;
        }
        self.finish()
    }

    /// The directory of a zip is at its end, so all of it is there before the first member is read.
    fn zip(mut self, mut source: impl Read, mut spool: File, meter: &Rc<Meter>) -> Result<Imported, Problem> {
        let headers = self.caps.entries.saturating_mul(512).saturating_add(1 << 20);
        let most = self.caps.bytes.saturating_add(headers);
        let mut buffer = vec![0; 128 << 10];
        loop {
            let read = match source.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(fault(error)),
            };
            if meter.packed.get() > most {
                return Err(self.too_many_bytes());
            }
            spool.write_all(&buffer[..read]).map_err(|error| {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                problem(errno, self.stage.at, "written to")
            })?;
        }
        let mut zip = Zip::open(&spool)?;
        while let Some(stored) = zip.next()? {
            let mut content = Unpacked::new(zip.content(&stored), meter);
            self.member(&stored.member, &mut content)?;
        }
        self.finish()
    }

    fn member(&mut self, member: &Member, content: &mut impl Read) -> Result<(), Problem> {
        self.imported.entry_count += 1;
        if self.imported.entry_count > self.caps.entries {
            return Err(Problem::limit(
                "archive_entries",
                format!(
                    "the archive has more than {} members, and nothing of it was kept",
                    self.caps.entries
                ),
                "import it in parts",
            ));
        }
        let parts = member.parts(&self.caps)?;
        let stripped = &mut self.imported.stripped;
        strip(member, stripped);
        match &member.kind {
            Kind::Directory => self.stage.directory(member, &parts),
            Kind::Symlink(target) => self.stage.symlink(member, &parts, target),
            Kind::File => {
                self.files += 1;
                let name = parts.last().map(|name| String::from_utf8_lossy(name).into_owned());
                let name = name.unwrap_or_default();
                self.rules.check_count(self.files)?;
                self.rules.check_name(&name)?;
                self.rules.check_size(&name, member.size)?;
                let bytes = self.imported.bytes_written.saturating_add(member.size);
                if bytes > self.caps.bytes {
                    return Err(self.too_many_bytes());
                }
                self.imported.bytes_written = bytes;
                self.stage.file(member, &parts, content)
            }
        }
    }

    fn too_many_bytes(&self) -> Problem {
        Problem::limit(
            "archive_bytes",
            format!(
                "the archive has more than {}, and nothing of it was kept",
                format_bytes(self.caps.bytes)
            ),
            "import it in parts",
        )
    }

    fn finish(self) -> Result<Imported, Problem> {
        self.stage.finish()?;
        Ok(self.imported)
    }
}

/// Counts what is not taken over.
fn strip(member: &Member, stripped: &mut Stripped) {
    let ours = |id: u64| id == 0 || id == 1000;
    stripped.special_modes += u64::from(member.mode & 0o7000 != 0);
    stripped.ownership += u64::from(!ours(member.owner.0) || !ours(member.owner.1));
    stripped.xattrs += member.xattrs;
}
