// SPDX-License-Identifier: Apache-2.0
// What checks with both ends in one program are made of: two contexts of the provider under test, and connections between them.
#pragma once

#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/testing/conformance.hpp>
#include <verbena/testing/conformance/end.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace verbena::testing::conformance {

using namespace std::chrono_literals;
using verbs::opcode;
using verbs::status;

/// Throws failure with the place and the text of what does not hold.
void must(bool holds, const char* text, const char* file, int line);
/// Also with the error.
template<class T>
void must(const result<T>& r, const char* text, const char* file, int line)
{
    if (!r)
        must(false, (std::string(text) + ": " + r.error().message()).c_str(), file, line);
}
/// Also with both values.
void must_equal(std::uint64_t a, std::uint64_t b, const char* text, const char* file, int line);
void must_equal(status a, status b, const char* text, const char* file, int line);
void must_equal(const error& a, std::errc b, const char* text, const char* file, int line);

/// An error of this kind.
template<class T>
void must_fail_with(const result<T>& r, std::errc e, const char* text, const char* file, int line)
{
    must(!r, text, file, line);
    must_equal(r.error(), e, text, file, line);
}

/// A condition, or a result<T> that must be no error.
#define VERBENA_MUST(...) \
    ::verbena::testing::conformance::must((__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)
#define VERBENA_MUST_EQUAL(A, B) \
    ::verbena::testing::conformance::must_equal((A), (B), #A " == " #B, __FILE__, __LINE__)
#define VERBENA_MUST_FAIL(R, E) \
    ::verbena::testing::conformance::must_fail_with((R), (E), #R " fails", __FILE__, __LINE__)

/// Runs `body`, whose failure then begins with `name`.
void part(const std::string& name, const std::function<void()>& body);

std::vector<std::byte> pattern(std::size_t n, std::size_t seed = 1);

/// Notes what one queue pair tells.
struct recorder final : verbs::completion_handler {
    /// `c`: where expect() notes what does not hold: fixture::complaint, or what reports_to() replaces by it.
    explicit recorder(std::string& c) noexcept : complaint(&c) {}
    void reports_to(std::string& c) noexcept { complaint = &c; }
    void on_completions(std::span<const verbs::completion> batch) noexcept override;
    void on_disconnected(const error& cause) noexcept override;
    /// From a handler, which can't throw: the check fails by the first such thing when its body has ended.
    void expect(bool holds, const char* text) noexcept;
    const verbs::completion* find(std::uint64_t id) const;
    /// That of the request `id`; there must be one.
    const verbs::completion& at(std::uint64_t id, int line = __builtin_LINE(),
                                const char* file = __builtin_FILE()) const;
    std::size_t count(std::uint64_t id) const;
    bool good(std::uint64_t id) const { return find(id) != nullptr && find(id)->status == status::success; }
    /// The ids of one direction, in the order of their completions.
    std::vector<std::uint64_t> order(bool receives) const;

    std::vector<verbs::completion> seen;
    std::function<void(const verbs::completion&)> hook;
    unsigned ends = 0;
    error why;

private:
    std::string* complaint; // outlives this
};

/// Memory that a domain knows.
struct memory {
    memory(std::vector<std::byte> content, std::unique_ptr<verbs::region> r)
        : bytes(std::move(content)), region(std::move(r))
    {
    }
    verbs::segment part(std::size_t offset, std::size_t size)
    {
        return {bytes.data() + offset, std::uint32_t(size), region->local_key()};
    }
    verbs::segment all() { return part(0, bytes.size()); }

    std::vector<std::byte> bytes;
    std::unique_ptr<verbs::region> region;
};
task<memory> registered(verbs::protection_domain& d, std::vector<std::byte> content);
task<memory> registered(verbs::protection_domain& d, std::size_t size);

struct side {
    explicit side(std::unique_ptr<verbs::context> c);
    std::unique_ptr<verbs::context> context;
    std::unique_ptr<verbs::protection_domain> domain;
};

/// One connection: `c` is the initiator's end, `s` the responder's.
struct connection {
    connection() = default;
    connection(const connection&) = delete;
    std::string own_complaint; ///< until a fixture connects it
    recorder c_seen{own_complaint}, s_seen{own_complaint};
    std::unique_ptr<verbs::queue_pair> c, s;
};

result<void> post(verbs::queue_pair& q, std::uint64_t id, opcode op, std::vector<verbs::segment> segments,
                  const verbs::remote_segment& remote = {}, std::uint32_t invalidate = 0,
                  bool signalled = true);
result<void> post_receive(verbs::queue_pair& q, std::uint64_t id, const verbs::segment& s);

/// The time of a check, all parts of it together.
inline constexpr auto check_limit = std::chrono::seconds(240);

/// While it lives, a check of `p` runs, and all its fixtures share its time.
class check_time {
public:
    explicit check_time(subject& p) noexcept : of_(p)
    {
        of_.check_ends_ = of_.shard().clock().now() + check_limit;
    }
    check_time(const check_time&) = delete;
    ~check_time() { of_.check_ends_ = time_point::max(); }
    /// The end of the time of the check of `p` that runs; of a check that begins now, where none does.
    static time_point end_for(subject& p) noexcept
    {
        return p.check_ends_ != time_point::max() ? p.check_ends_ : p.shard().clock().now() + check_limit;
    }

private:
    subject& of_;
};

/// A listener, and whatever the body makes.
struct fixture {
    /// Outside of a check (check_time) it has the time of one to itself.
    explicit fixture(subject& p);
    const verbs::capabilities& can() const { return server.context->query(); }
    reactor& shard() { return under.shard(); }
    bool device() const noexcept { return under.works_by_itself(); }

    task<void> answer(connection& n, verbs::connect_options o);
    task<void> connect(connection& n, verbs::connect_options of_client = {},
                       verbs::connect_options of_server = {});
    /// Runs `body` while `child` runs beside it, and returns when both have ended. If one of them fails, so does this, by
    /// what failed first.
    task<void> beside(const std::function<task<void>()>& child, const std::function<task<void>()>& body);
    static constexpr auto waits_for_peer =
        std::chrono::seconds(20);         ///< at a listener; connects take 10 s at most
    static constexpr int patience = 5000; // milliseconds of the shard's clock
    /// Waits until `done`; fails after some seconds of the shard's clock.
    task<void> until(const std::function<bool()>& done, int line = __builtin_LINE(),
                     const char* file = __builtin_FILE());
    task<void> both_ended(connection& n, int line = __builtin_LINE(), const char* file = __builtin_FILE());
    /// Until `body` has ended. It fails when the check's time is over, also if `body` ends well after that: then the stop may
    /// have ended what should have ended by itself.
    void run(const std::function<task<void>()>& body);
    /// As run(), in a host loop that sleeps wherever the shard lets it.
    void run_nested(const std::function<task<void>()>& body);

    subject& under;
    side server, client;
    std::unique_ptr<verbs::listener> listener;
    std::string where;
    std::string complaint; ///< of recorders
    const time_point over; ///< the end of the check's time

private:
    duration left() const noexcept { return over - under.shard().clock().now(); }
    bool is_over() const noexcept { return left() <= duration::zero(); }
};

/// Those of each source.
std::span<const check> connection_checks() noexcept;
std::span<const check> message_checks() noexcept;
std::span<const check> queue_checks() noexcept;
std::span<const check> right_checks() noexcept;

} // namespace verbena::testing::conformance
