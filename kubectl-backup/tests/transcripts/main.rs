//! Command lines and their output: every transcript comes from answers as an API server gives them,
//! through the whole program (arguments, kubeconfig, HTTP, views, printing). The snapshots are in
//! `snapshots/`.

#![allow(clippy::unwrap_used, clippy::panic)] // the helpers of tests are tests, too

#[macro_use]
extern crate backup_testkit;

mod cancel;
mod complete;
mod copy;
mod create;
mod debug;
mod delete;
mod demo;
mod describe;
mod diff;
mod doctor;
mod drill;
mod errors;
mod fake_api;
mod forms;
mod get;
mod guarded;
mod help;
mod install;
mod items;
mod locations;
mod locks;
mod manifests;
mod migrate;
mod operations;
mod owners;
mod person;
mod prelude;
mod profiles;
mod repositories;
mod restore;
mod samples;
mod schedules;
mod status;
mod stored;
mod sync;
mod uninstall;
mod verify;
mod version;
mod volumes;
mod wait;
mod wait_for;
