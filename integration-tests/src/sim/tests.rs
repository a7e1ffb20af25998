//! Many seeds, each of which picks its weather; faults that must be noticed; stories.

mod faults;
mod seeds;
