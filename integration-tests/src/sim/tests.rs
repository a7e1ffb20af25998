//! Many seeds, each of which picks its weather; faults that must be noticed; stories.

//mod disks;
mod copies;
mod faults;
mod leadership;
//mod membership;
mod seeds;
mod stage;
