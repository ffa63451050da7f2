// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/scope.hpp>

#include <cstdio>
#include <cstdlib>

namespace verbena {

incomplete_run::incomplete_run(run_end why)
    : std::runtime_error(
          why == run_end::stopped
              ? "run_until_complete: somebody else called stop() of the reactor before the task had ended"
              : "run_until_complete: the task waits for something that can't happen: by the virtual clock "
                "nothing is ready "
                "and no timer is armed"),
      why_(why)
{
}

void detail::root_record::enter_group() noexcept { group_.enter(context()->shard->task_groups(), *this); }

void detail::run_to_the_end(reactor& r, scope& s, const bool& ended)
{
    const run_end why = r.run();
    if (ended)
        return;
    s.request_stop();
    while (!ended) {
        if (r.run() == run_end::nothing_left && !ended) {
            std::fputs("verbena: run_until_complete: the task waits for something that can't happen, and is "
                       "deaf to a stop; what "
                       "it refers to would go before it\n",
                       stderr);
            std::abort();
        }
    }
    throw incomplete_run(why);
}

} // namespace verbena
