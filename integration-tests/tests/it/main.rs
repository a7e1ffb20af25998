//! Stories about real processes on loopback, one file each.
//!
//! Each starts a cluster of its own, on ports and in a directory of its own, so several run at a time;
//! they are made to share two cores by two:
//!
//! ```text
//! cargo build --release -p kvnode --bins
//! cargo test --release -p integration-tests --test it -- --test-threads 2
//! ```
//!
//! `RINGKV_SEED=N` repeats the plan of the runs that draw random numbers; they print it. `KVNODE` and
//! `KVNODE_FAULTS` name other programs than those beside the tests. `--nocapture` shows what was
//! measured. The logs of a story that fails are kept, and with `RINGKV_KEEP_DATA=1` its data as well.

mod any_node;
mod damaged_copies;
mod deletions;
mod disk_stall;
mod full_disk;
mod garbage;
mod kill_matrix;
mod leader_killed;
mod leaving;
mod linearizable;
mod one_zone;
mod power_off;
mod races;
mod requests;
mod returning;
mod saturation;
mod scaling;
mod starting;
mod uninitialised;
mod wiped;
