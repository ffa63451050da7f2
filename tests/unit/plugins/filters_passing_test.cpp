// SPDX-License-Identifier: Apache-2.0
// What a filter lets pass it leaves as it is: the suites of back ends over memfs beneath all filters, and walks beneath each of them alone, with the
// settings that ask for nothing.
#include "backend_fixture.hpp"

#include <verbena/plugins/delay.hpp>
#include <verbena/plugins/error.hpp>
#include <verbena/plugins/limit.hpp>
#include <verbena/plugins/memfs.hpp>

#include <limits>

namespace suite {

namespace {

enum class stack { everything, forwarding, delay, error, limit };
stack chosen = stack::everything;

template<class Filter>
std::unique_ptr<file_backend> must_make(result<std::unique_ptr<Filter>> made)
{
    BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
    return std::move(*made);
}

} // namespace

std::unique_ptr<file_backend> make_backend(blocking_pool& pool, const backend_options& options)
{
    memfs::memfs_options o;
    o.root_mode = 0777;
    o.read_only = options.read_only;
    auto fs = must_make(memfs::open_memfs(o, pool));
    switch (chosen) {
    case stack::forwarding:
        return std::make_unique<forwarding_backend>(std::move(fs), filter_bytes::are_those_below);
    case stack::delay: return must_make(filters::open_delay(std::move(fs), {}));
    case stack::error: return must_make(filters::open_error(std::move(fs), {}, pool));
    case stack::limit: return must_make(filters::open_limit(std::move(fs), {}));
    case stack::everything: break;
    }
    // Each of them asks about every operation, and then lets it pass.
    filters::limit_options wide;
    wide.client_operations = wide.total_operations = filters::most_limited_operations;
    wide.client_bytes = wide.total_bytes = filters::most_limited_bytes;
    fs = must_make(filters::open_limit(std::move(fs), wide));
    filters::error_options late;
    late.every = std::numeric_limits<std::uint64_t>::max();
    fs = must_make(filters::open_error(std::move(fs), late, pool));
    fs = std::make_unique<forwarding_backend>(std::move(fs), filter_bytes::are_those_below);
    filters::delay_options shortly;
    shortly.read = shortly.write = shortly.sync = shortly.metadata = {duration(0), duration(2)};
    return must_make(filters::open_delay(std::move(fs), shortly));
}

bool tells_users_apart() { return true; }

} // namespace suite

using namespace suite;

namespace {

struct choice {
    explicit choice(stack s) { chosen = s; }
    ~choice() { chosen = stack::everything; }
};

} // namespace

BOOST_AUTO_TEST_CASE(walks_through_what_forwards_everything)
{
    const choice c(stack::forwarding);
    walk_beside_system_calls(1, 1);
}

BOOST_AUTO_TEST_CASE(walks_through_a_delay_of_nothing)
{
    const choice c(stack::delay);
    walk_beside_system_calls(1, 1);
}

BOOST_AUTO_TEST_CASE(walks_through_errors_that_never_come)
{
    const choice c(stack::error);
    walk_beside_system_calls(1, 1);
}

BOOST_AUTO_TEST_CASE(walks_through_no_limit)
{
    const choice c(stack::limit);
    walk_beside_system_calls(1, 1);
}
