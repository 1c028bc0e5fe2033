mod builtin;
mod files;
mod others;
mod refused;
