//! The selection of a Backup or Restore: by name with globs, and by labels.

mod glob;
mod includes;
mod labels;
mod object_name;
mod text;

pub use glob::{glob_match, globs_may_overlap, is_glob};
pub use includes::IncludesExcludes;
pub use labels::LabelFilter;
pub use object_name::ObjectName;
pub use text::parse_selector;
