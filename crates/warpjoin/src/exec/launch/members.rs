//! Parts of a query that devices run independently, each as its own query.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use warpjoin_columns::Result;
use warpjoin_device::{Stream, span};

use crate::Session;
use crate::exec::metrics::QueryMetrics;
use crate::exec::query::Query;

impl Query<'_> {
    /// Runs `work` for each device as a query of that device alone, on this query's streams; in parallel if each device
    /// has a thread. Returns the results in device order.
    ///
    /// The work may read data written before. Of other devices' buffers it may only read those in host memory.
    pub(in crate::exec) fn on_members<T: Send>(
        &mut self,
        work: impl Fn(&mut Query<'_>, usize) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        if self.devices() == 1 {
            return Ok(vec![work(self, 0)?]);
        }
        let (inputs, options, permits) = (self.inputs, self.options, &self.permits);
        let session = |(device, stream): (usize, &Stream)| Ok((device, self.session.member(device)?, stream.clone()));
        let members = self.streams.iter().enumerate().map(session).collect::<Result<Vec<_>>>()?;
        let run = |(device, member, stream): &(usize, Arc<Session>, Stream)| -> Result<(T, QueryMetrics)> {
            let device = *device;
            let _span = span(|| format!("device {device}"));
            let _running = member.device_set().enter();
            let mut query = Query::over(member, inputs, options, Arc::clone(permits), vec![stream.clone()])?;
            let outcome = work(&mut query, device);
            let outcome = query.end(outcome)?;
            Ok((outcome, std::mem::take(&mut query.metrics)))
        };
        let done: Result<Vec<_>> = if self.has_thread_each() {
            thread::scope(|threads| {
                let run = &run;
                let running: Vec<_> = members.iter().map(|member| threads.spawn(move || run(member))).collect();
                running.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
            })
        } else {
            members.iter().map(run).collect()
        };
        let mut outcomes = vec![];
        for (device, (outcome, metrics)) in done?.into_iter().enumerate() {
            self.times.add_kernel(device, metrics.kernel_ns);
            self.metrics.add_part(metrics);
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }
}

/// The contiguous share of `count` items for one of several devices.
pub(in crate::exec) fn share_of(device: usize, devices: usize, count: usize) -> Range<usize> {
    device * count / devices..(device + 1) * count / devices
}
