//! Files of a volume: how they are found, opened, read and compared. Nothing here knows of
//! repositories.

mod attributes;
mod device;
mod reader;
mod root;
mod walk;

pub(crate) use attributes::{Attributes, ExtendedAttribute, Moment, NOT_OURS};
pub(crate) use device::{device_size, open_target};
pub(crate) use reader::{SourceFile, SourceReader};
pub(crate) use root::Root;
pub(crate) use walk::{Entry, EntryKind, Identity, Walk, WalkDepth};
