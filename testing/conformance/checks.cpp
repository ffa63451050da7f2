// SPDX-License-Identifier: Apache-2.0
// All checks as one list, and each run so that its failure is an outcome.
#include "fixture.hpp"

#include <verbena/testing/conformance/server.hpp>
#include <verbena/testing/conformance/target.hpp>

#include <algorithm>
#include <cctype>
#include <exception>
#include <functional>

namespace verbena::testing::conformance {
namespace {

static_assert(check_limit == target::limit);

outcome judged(const std::function<void()>& body)
{
    try {
        body();
        return {};
    } catch (const not_supported& n) {
        return {verdict::not_supported, n.what()};
    } catch (const std::exception& e) {
        return {verdict::failed, e.what()};
    } catch (...) {
        return {verdict::failed, "something was thrown that is no std::exception"};
    }
}

task<void> ask_server(const check& c, target& t, outcome& out)
{
    co_await t.main.prepare();
    co_await t.connect(t.main);
    out = co_await run(c, t);
    co_await t.leave();
}

// A server beside the check, in the same turns.
outcome run_beside_server(const check& c, subject& p)
{
    fixture f(p);
    outcome out;
    const auto body = [&]() -> task<void> {
        server s(*f.server.context, {});
        target t(*f.client.context, f.where, 1);
        t.of_server = &f.can();
        t.begin_check();
        const auto serves = [&] { return s.run(*f.listener, false); };
        const auto asks = [&]() -> task<void> {
            std::exception_ptr failed;
            try {
                co_await ask_server(c, t, out);
            } catch (...) {
                failed = std::current_exception();
            }
            f.listener->close();
            s.stop();
            if (failed)
                std::rethrow_exception(failed);
        };
        co_await f.beside(serves, asks);
    };
    try {
        f.run(body);
    } catch (const failure& e) {
        if (out.verdict != verdict::failed)
            throw;
        out.reason += "; then: " + e.why; // which follows from what the check has found, as a rule
    }
    return out;
}

} // namespace

std::span<const check> checks() noexcept
{
    static const std::vector<check> all = [] {
        std::vector<check> list;
        for (const auto part :
             {connection_checks(), message_checks(), queue_checks(), right_checks(), checks_from_one_end()})
            list.insert(list.end(), part.begin(), part.end());
        return list;
    }();
    return all;
}

std::string_view to_string(verdict v) noexcept
{
    switch (v) {
    case verdict::passed: return "passed";
    case verdict::failed: return "failed";
    case verdict::not_supported: return "not supported";
    }
    return "unknown";
}

outcome run(const check& c, subject& p)
{
    const check_time counts(p);
    outcome out;
    const outcome run_itself = judged([&] {
        need(c.from_one_end != nullptr || c.in_one_program != nullptr, "a check without a function");
        if (c.from_one_end != nullptr)
            out = run_beside_server(c, p);
        else
            c.in_one_program(p);
    });
    return run_itself.verdict == verdict::passed ? out : run_itself;
}

task<outcome> run(const check& c, target& t)
{
    if (c.from_one_end == nullptr)
        co_return outcome{verdict::failed, "it needs both ends in one program: run(check, subject&)"};
    t.begin_check();
    std::exception_ptr left;
    try {
        co_await c.from_one_end(t);
    } catch (...) {
        left = std::current_exception();
    }
    t.begin_check(); // what follows has its time too
    co_return judged([&] {
        if (left)
            std::rethrow_exception(left);
    });
}

std::string as_identifier(std::string_view name)
{
    std::string id;
    bool between = false;
    for (const char c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) {
            between = true;
            continue;
        }
        if (between && !id.empty())
            id += '_';
        between = false;
        id += c;
    }
    return id;
}

} // namespace verbena::testing::conformance
