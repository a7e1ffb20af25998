//! What is around `placement::simulate` for `kvctl simulate`: keys, threads, clocks, files and charts.
//!
//! A command turns its arguments into a [`study::Study`]: tables, charts and remarks. What is printed
//! follows from that alone, so every command speaks every format.
//!
//! Invariants:
//! - the same arguments give the same numbers, whatever the number of threads; only times differ;
//! - memory does not grow with the number of keys.
//!
//! Reading order: [`study`], [`settings`], [`workload`], [`file`], [`replay`], [`live`], [`latency`],
//! then one module for each command, [`chart`] and [`html`].

pub mod study;

pub mod settings;

pub mod workload;

pub mod file;

pub mod replay;

pub mod live;

pub mod latency;

pub mod balance;

pub mod change;

pub mod strategies;

pub mod hot_key;

pub mod cache;

pub mod chart;

pub mod html;
