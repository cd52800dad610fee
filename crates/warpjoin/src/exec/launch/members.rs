//! Parts of a query that devices do by themselves, each as a query of its own.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use warpjoin_device::span;

use crate::exec::metrics::QueryMetrics;
use crate::exec::query::Query;
use crate::{Result, Session};

impl Query<'_> {
    /// Does work for each device as a query of that device alone: all at the same time, where each device has a thread. What it
    /// came to, device after device.
    ///
    /// The buffers that the work reads must not be written any more. Devices reach those in the host's memory only.
    pub(in crate::exec) fn on_members<T: Send>(
        &mut self,
        work: impl Fn(&mut Query<'_>, usize) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        if self.devices() == 1 {
            return Ok(vec![work(self, 0)?]);
        }
        // They take permits of their own.
        self.release_permit();
        let members = (0..self.devices()).map(|device| self.session.member(device)).collect::<Result<Vec<_>>>()?;
        let (inputs, options) = (self.inputs, self.options);
        let run = |(device, member): (usize, &Arc<Session>)| {
            let _span = span(|| format!("device {device}"));
            let _running = member.device_set().enter();
            let mut query = Query::new(member, inputs, options)?;
            let outcome = work(&mut query, device);
            let outcome = query.end(outcome)?;
            Ok((outcome, std::mem::take(&mut query.metrics)))
        };
        let members = members.iter().enumerate();
        let done: Vec<Result<(T, QueryMetrics)>> = if self.has_thread_each() {
            thread::scope(|threads| {
                let run = &run;
                let running: Vec<_> = members.map(|member| threads.spawn(move || run(member))).collect();
                running.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
            })
        } else {
            members.map(run).collect()
        };
        let mut outcomes = vec![];
        for (device, done) in done.into_iter().enumerate() {
            let (outcome, metrics) = done?;
            self.times.add_kernel(device, metrics.kernel_ns);
            self.metrics.add_part(metrics);
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }
}
