//! What a layer worker does: everything that looks into what rooms have written, which the host never does itself.
//!
//! ```text
//!  worker.rs    a task from its beginning to its answer, confined
//!  stack.rs     the worker's own root; stacks of layers as rooms see them
//!  walk.rs      trees without links followed, at any depth
//!  compare.rs   two stacks side by side, at the cost of what differs
//!  copy.rs      one entry with all that it is; passes.rs: a layer, while it is written to
//!  xattrs.rs    which attributes are the overlay's and which are the room's
//!  archive.rs   the tar format of exports
//!  diff.rs digest.rs merge.rs squash.rs export.rs import.rs measure.rs remove.rs    a task each
//! ```
#![forbid(unsafe_code)]

mod archive;
mod compare;
mod copy;
mod diff;
mod digest;
mod export;
mod image;
mod import;
mod measure;
mod merge;
mod merge_apply;
mod passes;
mod patch_text;
mod remove;
mod squash;
mod stack;
mod walk;
mod worker;
mod xattrs;

pub use image::{
    BYTES_PER_INODE, ImageSize, can_mount_images, image_length, is_image, length_for, make_image,
    mount_image, take_files,
};
pub use remove::remove_tree;
pub use stack::Mounts;
pub use worker::{Needs, Worker, failed};
