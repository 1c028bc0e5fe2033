//! The program, as a pod runs it.

#[cfg(test)]
mod program;
#[cfg(test)]
mod restic;
