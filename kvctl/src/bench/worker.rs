//! A worker: one operation at a time, a connection to each node that it needs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Uri};
use kvapi::{Outcome, Problem, RouteTable};
use placement::PartitionId;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::link::{Link, LinkError, Reply, Watchdog};
use super::plan::{Kind, Operation, Plan};
use super::tally::{End, Tally};

/// Refusals that name another leader are followed at once this often in a row, then with a pause:
/// while a leader changes, two nodes may name each other.
const REDIRECTS_AT_ONCE_MAX: u64 = 2;
/// Pause after a refusal or a lost node, so that an outage is not answered with a storm.
const COOL_DOWN: Duration = Duration::from_millis(5);
/// Attempts for one key of the preload.
const PRELOAD_ATTEMPTS_MAX: u32 = 2000;

/// The routes that all workers use, replaced while they run.
#[derive(Debug)]
pub struct Routes {
    generation: AtomicU64,
    table: Mutex<Arc<RouteTable>>,
    /// Some node has a newer ring.
    pub is_outdated: AtomicBool,
}

/// How operations find a node.
#[derive(Clone, Debug)]
pub enum Route {
    /// Straight to the leader.
    Ring(Arc<Routes>),
    /// To these addresses, each worker to its own.
    Any(Arc<[String]>),
}

/// When operations start.
#[derive(Debug)]
pub enum Pace {
    /// The next one when a worker is free, until this time.
    Closed(Instant),
    /// Each at its time, whether or not the ones before have ended.
    Open {
        /// Holds a permit for each operation whose time has come; closed at the end.
        due: Semaphore,
        /// Time of the first operation.
        started: Instant,
        /// Time between two operations.
        interval_nanos: f64,
    },
    /// Each key is written once.
    Preload,
}

/// What all workers of a run share.
#[derive(Debug)]
pub struct Load {
    /// The operations.
    pub plan: Plan,
    /// Where they go.
    pub route: Route,
    /// When they start.
    pub pace: Pace,
    /// Index of the next one.
    pub next: AtomicU64,
    /// Time for one answer.
    pub timeout: Duration,
    /// Appended to the paths of reads.
    pub read_query: &'static str,
    /// No more operations are to start.
    pub is_ended: Arc<AtomicBool>,
}

/// One worker.
pub struct Worker {
    load: Arc<Load>,
    tally: Arc<Mutex<Tally>>,
    /// Its number, which spreads workers over addresses.
    number: usize,
    links: Vec<Option<Link>>,
    table: Option<(u64, Arc<RouteTable>)>,
    watchdog: Watchdog,
    key: Vec<u8>,
}

impl Routes {
    /// Routes by this table.
    pub fn new(table: Arc<RouteTable>) -> Self {
        Self {
            generation: AtomicU64::new(1),
            table: Mutex::new(table),
            is_outdated: AtomicBool::new(false),
        }
    }

    /// Routes by another table from now on, unless it is the same.
    pub fn replace(&self, table: Arc<RouteTable>) {
        let mut current = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&current, &table) {
            *current = table;
            self.generation.fetch_add(1, Ordering::Release);
        }
    }
}

impl Worker {
    /// A worker without connections; `number` spreads workers over addresses.
    pub fn new(load: Arc<Load>, tally: Arc<Mutex<Tally>>, number: usize) -> Self {
        let watchdog = Watchdog::new(load.timeout);
        let key = Vec::with_capacity(64);
        Self { load, tally, number, links: Vec::new(), table: None, watchdog, key }
    }

    /// Performs operations until there are no more.
    pub async fn run(mut self) {
        while let Some((index, started)) = self.next().await {
            let load = Arc::clone(&self.load);
            let is_preload = matches!(load.pace, Pace::Preload);
            let operation = match is_preload {
                true => Operation { kind: Kind::Put, key: index },
                false => load.plan.operation(index),
            };
            let mut attempts = 0;
            loop {
                attempts += 1;
                let (end, redirects) = self.perform(index, operation).await;
                let succeeded = matches!(end, End::Done | End::Miss);
                // A key is counted once, however many attempts it took.
                let is_last = succeeded || !is_preload || attempts >= PRELOAD_ATTEMPTS_MAX;
                if is_last {
                    self.record(operation.kind, end, started.elapsed(), redirects);
                }
                if !succeeded {
                    tokio::time::sleep(COOL_DOWN).await;
                }
                if is_last {
                    break;
                }
            }
        }
    }

    fn record(&self, kind: Kind, end: End, latency: Duration, redirects: u64) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.record(kind, end, latency, redirects);
    }

    /// The next operation and the time from which its latency counts.
    async fn next(&self) -> Option<(u64, Instant)> {
        let is_ended = self.load.is_ended.load(Ordering::Relaxed);
        match &self.load.pace {
            // What an open loop has released is still carried out.
            Pace::Closed(_) | Pace::Preload if is_ended => None,
            Pace::Closed(end) => {
                let now = Instant::now();
                (now < *end).then(|| (self.load.next.fetch_add(1, Ordering::Relaxed), now))
            }
            Pace::Open { due, started, interval_nanos } => {
                due.acquire().await.ok()?.forget();
                let index = self.load.next.fetch_add(1, Ordering::Relaxed);
                let offset = Duration::from_nanos((index as f64 * interval_nanos) as u64);
                Some((index, *started + offset))
            }
            Pace::Preload => {
                let index = self.load.next.fetch_add(1, Ordering::Relaxed);
                (index < self.load.plan.keys()).then(|| (index, Instant::now()))
            }
        }
    }

    async fn perform(&mut self, index: u64, operation: Operation) -> (End, u64) {
        let load = Arc::clone(&self.load);
        match &load.route {
            Route::Any(addresses) => {
                let place = self.number % addresses.len();
                let reply = self.send(place, &addresses[place], false, index, operation).await;
                if matches!(reply, Err(LinkError::NotSent)) {
                    self.number += 1;
                }
                (end_of(operation.kind, &reply), 0)
            }
            Route::Ring(routes) => {
                load.plan.write_key(operation.key, &mut self.key);
                let deadline = Instant::now() + load.timeout;
                let mut redirects = 0;
                loop {
                    // While a leader changes, a newer ring may come.
                    let table = self.table(routes);
                    let partition = table.ring().partition_of(&self.key);
                    let (reply, followed) =
                        self.follow_leader(&table, partition, index, operation).await;
                    redirects += followed;
                    if let Ok(Reply { epoch: Some(epoch), .. }) = reply
                        && epoch > table.epoch().get()
                    {
                        routes.is_outdated.store(true, Ordering::Relaxed);
                    }
                    let is_led_elsewhere = matches!(&reply, Ok(reply) if reply.status == 421);
                    if !is_led_elsewhere {
                        return (end_of(operation.kind, &reply), redirects);
                    }
                    if Instant::now() + COOL_DOWN >= deadline {
                        return (End::Redirects, redirects);
                    }
                    tokio::time::sleep(COOL_DOWN).await;
                }
            }
        }
    }

    /// Sends to the leader, and on to the leader that a refusal names, a few times. Another owner is
    /// asked only if nothing was sent to the one before.
    async fn follow_leader(
        &mut self,
        table: &RouteTable,
        partition: PartitionId,
        index: u64,
        operation: Operation,
    ) -> (Result<Reply, LinkError>, u64) {
        let mut redirects = 0;
        let mut passed_over = 0;
        let mut place = table.first(partition);
        loop {
            let Some(node) = place else {
                return (Err(LinkError::NotSent), redirects);
            };
            let address = &table.nodes()[node].client_address;
            let reply = self.send(node, address, true, index, operation).await;
            let next = match &reply {
                Err(LinkError::NotSent) => {
                    table.forget(partition, node);
                    passed_over += 1;
                    table.owners(partition).filter(|owner| *owner != node).nth(passed_over - 1)
                }
                Err(LinkError::Broken | LinkError::Timeout) => {
                    table.forget(partition, node);
                    None
                }
                Ok(reply) if reply.status == 421 => {
                    redirects += 1;
                    let leader = leader_of(table, &reply.refusal).filter(|leader| *leader != node);
                    match leader {
                        Some(leader) => table.learn(partition, leader),
                        None => table.forget(partition, node),
                    }
                    leader.filter(|_| redirects <= REDIRECTS_AT_ONCE_MAX)
                }
                Ok(reply) if reply.status == 503 => {
                    table.forget(partition, node);
                    None
                }
                Ok(_) => {
                    if table.leader(partition) != Some(node) {
                        table.learn(partition, node);
                    }
                    None
                }
            };
            match next {
                Some(_) => place = next,
                None => return (reply, redirects),
            }
        }
    }

    async fn send(
        &mut self,
        place: usize,
        address: &str,
        is_direct: bool,
        index: u64,
        operation: Operation,
    ) -> Result<Reply, LinkError> {
        let plan = &self.load.plan;
        let path = plan.path(operation.key);
        let (method, path, body) = match operation.kind {
            Kind::Get if self.load.read_query.is_empty() => (Method::GET, path, Default::default()),
            Kind::Get => {
                let path = [path.as_ref(), self.load.read_query.as_bytes()].concat().into();
                (Method::GET, path, Default::default())
            }
            Kind::Put => (Method::PUT, path, plan.value(index)),
        };
        let uri = Uri::from_maybe_shared(path).map_err(|_| LinkError::NotSent)?;
        if self.links.len() <= place {
            self.links.resize_with(place + 1, || None);
        }
        let started = Instant::now();
        let mut reply = Err(LinkError::NotSent);
        // The second round is for a connection that the node had closed in the meantime.
        for _ in 0..2 {
            let mut link = match self.links[place].take() {
                Some(link) => link,
                None => {
                    let opening = Link::open(address, is_direct);
                    match tokio::time::timeout(self.load.timeout, opening).await {
                        Ok(Ok(link)) => link,
                        Ok(Err(_)) | Err(_) => return Err(LinkError::NotSent),
                    }
                }
            };
            let (method, uri, body) = (method.clone(), uri.clone(), body.clone());
            reply = link.exchange(method, uri, body, started, &mut self.watchdog).await;
            match &reply {
                Ok(_) => self.links[place] = Some(link),
                Err(LinkError::NotSent) => continue,
                Err(LinkError::Broken | LinkError::Timeout) => {}
            }
            break;
        }
        reply
    }

    fn table(&mut self, routes: &Routes) -> Arc<RouteTable> {
        let generation = routes.generation.load(Ordering::Acquire);
        match &self.table {
            Some((known, table)) if *known == generation => Arc::clone(table),
            Some(_) | None => {
                let table = routes.table.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let earlier = self.table.replace((generation, Arc::clone(&table)));
                self.links = match earlier {
                    Some((_, earlier)) => moved(std::mem::take(&mut self.links), &earlier, &table),
                    None => Vec::new(),
                };
                table
            }
        }
    }
}

/// Connections in the order of another table: places mean other nodes there.
fn moved(mut links: Vec<Option<Link>>, from: &RouteTable, to: &RouteTable) -> Vec<Option<Link>> {
    let mut link_to = |address: &str| links.get_mut(from.node_by_address(address)?)?.take();
    to.nodes().iter().map(|node| link_to(&node.client_address)).collect()
}

fn leader_of(table: &RouteTable, refusal: &[u8]) -> Option<usize> {
    let problem: Problem = serde_json::from_slice(refusal).ok()?;
    let leader = problem.leader?;
    table
        .node_by_name(leader.name.as_str())
        .or_else(|| table.node_by_address(&leader.client_address))
}

fn end_of(kind: Kind, reply: &Result<Reply, LinkError>) -> End {
    match reply {
        Err(LinkError::NotSent) => End::Connect,
        Err(LinkError::Broken) => End::Broken,
        Err(LinkError::Timeout) => End::Timeout,
        Ok(reply) => match (reply.status, kind) {
            (200..=299, _) => End::Done,
            (404, Kind::Get) => End::Miss,
            (429 | 503, _) if is_not_applied(&reply.refusal) => End::Retryable(reply.status),
            (504, _) => End::Unknown,
            (status, _) => End::Status(status),
        },
    }
}

fn is_not_applied(refusal: &[u8]) -> bool {
    serde_json::from_slice::<Problem>(refusal)
        .is_ok_and(|problem| problem.outcome == Outcome::NotApplied)
}

#[cfg(test)]
mod tests;
