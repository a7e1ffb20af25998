//! Many seeds, each of which picks its weather; faults that must be noticed; stories.

mod copies;
mod disks;
mod faults;
mod leadership;
mod membership;
mod seeds;
mod stage;
