// SPDX-License-Identifier: Apache-2.0
#include "stall_watch.hpp"

#include "../module/symbols.hpp"
#include "signals_blocked.hpp"

#include <verbena/core/log.hpp>

#include <chrono>
#include <cstdlib>
#include <cxxabi.h>
#include <exception>
#include <memory>
#include <pthread.h>
#include <string>
#include <sys/resource.h>
#include <system_error>
#include <unistd.h>

namespace verbena {
namespace {

constexpr int lowest_priority = 19;

std::string demangled(const char* name)
{
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> text(
        abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
    return text ? text.get() : name;
}

} // namespace

stall_watch::~stall_watch()
{
    if (namer_.joinable())
        namer_.join();
}

void stall_watch::log(const turn& t, std::string_view by)
{
    verbena::log(log_level::info, "core",
                 "a shard was held, and nothing else of it ran meanwhile; what blocks or computes for long "
                 "belongs into a blocking pool, or yields",
                 {{"shard", t.shard},
                  {"milliseconds", std::chrono::duration_cast<std::chrono::milliseconds>(t.took).count()},
                  {"by", by},
                  {"suppressed", t.suppressed}});
}

void stall_watch::log_with_name(const turn& t)
{
    if (code_ == nullptr)
        return log(t, what_ != nullptr ? demangled(what_) : "?");
    if (!has_ended_.load(std::memory_order_acquire)) // the shard waits for no thread
        return log(t, "a coroutine, while the name of the one before was looked up");
    if (namer_.joinable())
        namer_.join();
    looks_.store(true, std::memory_order_relaxed);
    has_ended_.store(false, std::memory_order_relaxed);
    const detail::signals_blocked blocked;
    try {
        namer_ = std::thread([this, t, address = reinterpret_cast<std::uintptr_t>(code_)] {
            pthread_setname_np(pthread_self(), "stall watch");
            // It has the shard's CPUs.
            (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), lowest_priority);
            try {
                const std::string name = detail::symbols({address}).name(address);
                looks_.store(false, std::memory_order_release);
                log(t, name);
            } catch (const std::exception&) { // no memory to tell of it
                looks_.store(false, std::memory_order_release);
            }
            has_ended_.store(true, std::memory_order_release);
        });
    } catch (const std::exception&) {
        looks_.store(false, std::memory_order_relaxed);
        has_ended_.store(true, std::memory_order_relaxed);
        log(t, "a coroutine, and no thread could be started to look its name up");
    }
}

} // namespace verbena
