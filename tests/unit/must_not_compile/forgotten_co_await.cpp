// SPDX-License-Identifier: Apache-2.0
// What is awaitable and is not awaited. ../must_not_compile_test.py says how this is read.
#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/file_read.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/task/channel.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/gate.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/semaphore.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/rpc/client.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>

#ifdef MENDED
#define AWAIT co_await
#define KEEP [[maybe_unused]] const auto kept =
#else
#define AWAIT
#define KEEP
#endif

using namespace verbena;
using namespace std::chrono_literals;

task<void> child();

task<void> core(event& e, semaphore& s, channel<int>& c, scope& children, blocking_pool& lane,
                buffer_pool& buffers, const shard& other)
{
    AWAIT e.wait();                   // says: co_await it: nothing waits here otherwise
    AWAIT e.wait_shielded();          // says: co_await it: nothing waits here otherwise
    AWAIT s.acquire();                // says: co_await it: nothing waits here otherwise
    AWAIT sleep_for(1ms);             // says: co_await it: nothing waits here otherwise
    AWAIT sleep_until(time_point());  // says: co_await it: nothing waits here otherwise
    AWAIT children.join();            // says: co_await it: nothing waits here otherwise
    AWAIT buffers.acquire(4096);      // says: co_await it: nothing waits here otherwise
    AWAIT c.send(1);                  // says: co_await it: a task does nothing until it is awaited
    AWAIT c.receive();                // says: co_await it: a task does nothing until it is awaited
    AWAIT child();                    // says: co_await it: a task does nothing until it is awaited
    AWAIT other.run(child);           // says: co_await it: a task does nothing until it is awaited
    AWAIT when_all(child(), child()); // says: co_await it: a task does nothing until it is awaited
    AWAIT when_any(child(), child()); // says: co_await it: a task does nothing until it is awaited
    auto job = [] {};
    AWAIT lane.run(std::move(job)); // says: co_await it: nothing runs otherwise
    AWAIT file_read(0, {}, 0);      // says: co_await it: nothing is read otherwise
    AWAIT current_context();        // says: co_await it: it yields the context
    co_return;
}

task<void> kept(gate& g, semaphore& s, channel<int>& c, int n)
{
    AWAIT g.close(); // says: co_await it: nothing waits here otherwise
    KEEP g.enter();  // says: the gate counts only the passes that are kept
    {
        KEEP s.try_acquire(); // says: true: a permit was taken, to be released
    }
    {
        KEEP c.try_send(n); // says: false: nothing was sent
    }
    co_return;
}

task<void> verbs_and_protocols(verbs::listener& l, verbs::connect_request& q, verbs::protection_domain& d,
                               rpc::client_transport& c, rpc::request& r,
                               rpc::duplicate_request_cache::visit& v)
{
    {
        KEEP AWAIT l.next(); // says: co_await it: a task does nothing until it is awaited
    }
    AWAIT d.revoke({}); // says: co_await it: a task does nothing until it is awaited
    AWAIT c.close();    // says: co_await it: a task does nothing until it is awaited
    AWAIT v.begin();    // says: co_await it: nothing waits here otherwise
    {
        KEEP AWAIT q.accept({}); // says: co_await it: a task does nothing until it is awaited
    }
    {
        KEEP AWAIT c.call(r); // says: co_await it: a task does nothing until it is awaited
    }
    co_return;
}
