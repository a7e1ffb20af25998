mod bench;
mod properties;
mod scenarios;
mod table;
