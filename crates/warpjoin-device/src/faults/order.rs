//! A happens-before check of buffer lifetimes over the calls to streams.
//!
//! Owns vector clocks; must not know what work computes. Each stream counts its work. A clock holds, for each stream, how
//! much of its work has certainly ended, because of an event or because the host waited.

use std::backtrace::Backtrace;
use std::collections::{BTreeMap, HashMap};

pub(super) type StreamId = u64;

/// For each stream, the amount of its work that has ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock(HashMap<StreamId, u64>);

impl Clock {
    fn of(&self, stream: StreamId) -> u64 {
        self.0.get(&stream).copied().unwrap_or(0)
    }

    fn join(&mut self, other: &Self) {
        for (&stream, &work) in &other.0 {
            let known = self.0.entry(stream).or_default();
            *known = work.max(*known);
        }
    }
}

/// A live buffer.
#[derive(Debug)]
struct Allocation {
    bytes: u64,
    made: (StreamId, u64),
    /// For each stream, the last work that uses the buffer.
    uses: HashMap<StreamId, u64>,
}

impl Allocation {
    /// Whether this buffer was made or used by work of the stream after its first `ended` pieces of work.
    fn depends_on(&self, stream: StreamId, ended: u64) -> bool {
        self.uses.get(&stream).is_some_and(|used| *used > ended) || (self.made.0 == stream && self.made.1 > ended)
    }

    /// Removes the stream, all of whose work has ended.
    fn forget(&mut self, stream: StreamId) {
        self.uses.remove(&stream);
        if self.made.0 == stream {
            self.made.1 = 0;
        }
    }
}

/// All streams and buffers of some devices.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// For each stream, what happens before its next work, including its own earlier work.
    streams: HashMap<StreamId, Clock>,
    opened: StreamId,
    /// Streams without a handle that may still have work running.
    closing: Vec<StreamId>,
    /// What happens before the host's next call. All host threads count as one.
    host: Clock,
    /// Live buffers by address.
    live: BTreeMap<u64, Allocation>,
    live_bytes: u64,
    findings: Vec<String>,
    /// Turns findings off while the devices are lost, since nothing runs on them.
    pub(super) is_off: bool,
}

impl Order {
    pub(super) fn open_stream(&mut self) -> StreamId {
        self.opened += 1;
        self.streams.insert(self.opened, Clock::default());
        self.opened
    }

    /// The stream's last handle was dropped. Closed streams are removed once no live buffer depends on their work, so that
    /// clocks do not grow with every stream.
    pub(super) fn close_stream(&mut self, stream: StreamId) {
        self.closing.push(stream);
        let is_done = |stream: StreamId| {
            let ended = self.host.of(stream);
            !self.live.values().any(|allocation| allocation.depends_on(stream, ended))
        };
        let (done, closing): (Vec<_>, Vec<_>) = self.closing.iter().copied().partition(|&stream| is_done(stream));
        self.closing = closing;
        for stream in done {
            self.streams.remove(&stream);
            self.host.0.remove(&stream);
            for clock in self.streams.values_mut() {
                clock.0.remove(&stream);
            }
            self.live.values_mut().for_each(|allocation| allocation.forget(stream));
        }
    }

    pub(super) fn take_findings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.findings)
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub(super) fn alloc(&mut self, stream: StreamId, address: u64, bytes: u64) {
        let made = (stream, self.advance(stream));
        self.live_bytes += bytes;
        if let Some(replaced) = self.live.insert(address, Allocation { bytes, made, uses: HashMap::new() }) {
            self.live_bytes -= replaced.bytes;
        }
    }

    /// Adds work of a stream. Those of `words` that point into live buffers are addresses that it uses.
    pub(super) fn work(&mut self, stream: StreamId, words: &[u64]) {
        let now = self.advance(stream);
        let Some(clock) = self.streams.get(&stream) else { return };
        for word in words {
            let Some((_, allocation)) = self.live.range_mut(..=word).next_back().filter(|(start, allocation)| {
                // Includes the end address, for an empty range.
                word - **start <= allocation.bytes
            }) else {
                continue;
            };
            allocation.uses.insert(stream, now);
            let (maker, made) = allocation.made;
            if clock.of(maker) < made && !self.is_off {
                self.findings.push(format!("stream {stream} uses memory that stream {maker} may not have made yet"));
            }
        }
    }

    pub(super) fn free(&mut self, stream: StreamId, address: u64, label: &str) {
        self.advance(stream);
        let Some(allocation) = self.live.remove(&address) else { return };
        self.live_bytes -= allocation.bytes;
        let Some(clock) = self.streams.get(&stream) else { return };
        let early = allocation.uses.iter().find(|(user, work)| clock.of(**user) < **work);
        if let Some((user, _)) = early.filter(|_| !self.is_off) {
            let bytes = allocation.bytes;
            let place = Backtrace::capture();
            self.findings.push(format!(
                "{bytes} bytes of {label} are freed on stream {stream} while stream {user} may use them\n{place}"
            ));
        }
    }

    pub(super) fn record(&mut self, stream: StreamId) -> Clock {
        self.advance(stream);
        self.streams.get(&stream).cloned().unwrap_or_default()
    }

    pub(super) fn wait(&mut self, stream: StreamId, event: &Clock) {
        self.advance(stream);
        // The event's clock may hold streams that were removed.
        let known = event.0.iter().filter(|(stream, _)| self.streams.contains_key(stream));
        let known = Clock(known.map(|(stream, work)| (*stream, *work)).collect());
        self.streams.entry(stream).or_default().join(&known);
    }

    pub(super) fn host_waits(&mut self, stream: StreamId) {
        if let Some(clock) = self.streams.get(&stream) {
            self.host.join(clock);
        }
    }

    /// The number of the stream's next work. It happens after everything that the host has waited for.
    fn advance(&mut self, stream: StreamId) -> u64 {
        let clock = self.streams.entry(stream).or_default();
        clock.join(&self.host);
        let work = clock.0.entry(stream).or_default();
        *work += 1;
        *work
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_streams_are_removed() {
        let mut order = Order::default();
        let lasting = order.open_stream();
        let mut event = Clock::default();
        for _ in 0..100 {
            let (stream, dropped) = (order.open_stream(), order.open_stream());
            order.alloc(stream, 4096, 64);
            order.alloc(dropped, 8192, 64);
            order.work(stream, &[4096]);
            order.work(dropped, &[8192]);
            event = order.record(stream);
            order.wait(lasting, &event);
            order.host_waits(stream);
            // Buffers are freed after the last wait, some of them after their stream.
            order.free(stream, 4096, "sim:0");
            order.close_stream(dropped);
            order.close_stream(stream);
            order.free(lasting, 8192, "sim:0");
        }
        let last = order.open_stream();
        order.close_stream(last);
        order.wait(lasting, &event);
        order.host_waits(lasting);
        assert_eq!((order.streams.len(), order.streams[&lasting].0.len(), order.host.0.len()), (1, 1, 1));
        assert!(order.closing.is_empty() && order.take_findings().len() == 100);
    }

    /// Two streams, where the second uses a buffer of the first.
    fn shared() -> (Order, StreamId, StreamId) {
        let mut order = Order::default();
        let (first, second) = (order.open_stream(), order.open_stream());
        order.alloc(first, 4096, 64);
        order.host_waits(first);
        order.work(second, &[7, 4100]);
        (order, first, second)
    }

    #[test]
    fn freeing_a_buffer_in_use_is_found() {
        let (mut order, first, _) = shared();
        order.free(first, 4096, "sim:0");
        assert_eq!((order.take_findings().len(), order.live_bytes()), (1, 0));
        assert!(order.take_findings().is_empty());
    }

    #[test]
    fn a_free_after_a_host_wait_or_an_event_is_valid() {
        let (mut order, first, second) = shared();
        order.host_waits(second);
        order.free(first, 4096, "sim:0");
        let (mut by_event, first, second) = shared();
        let event = by_event.record(second);
        by_event.wait(first, &event);
        by_event.free(first, 4096, "sim:0");
        assert!(order.take_findings().is_empty() && by_event.take_findings().is_empty());
        // An event recorded before the use does not order it.
        let (mut order, first, second) = shared();
        let event = order.record(second);
        order.work(second, &[4096]);
        order.wait(first, &event);
        order.free(first, 4096, "sim:0");
        assert_eq!(order.take_findings().len(), 1);
    }

    #[test]
    fn using_a_buffer_before_its_allocation_is_found() {
        let mut order = Order::default();
        let (first, second) = (order.open_stream(), order.open_stream());
        order.alloc(first, 4096, 64);
        order.work(second, &[5000]);
        assert!(order.take_findings().is_empty(), "another address");
        order.work(second, &[4096]);
        assert_eq!(order.take_findings().len(), 1);
    }
}
