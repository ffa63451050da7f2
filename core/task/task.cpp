// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/task/task.hpp>

#include "../last_words.hpp"
#include "../module/symbols.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>

namespace verbena::detail {
namespace {

// The ABI of both GCC and clang: a frame begins with the functions that resume and destroy it, and the first is null
// once the coroutine has ended.
std::string name_of(const void* frame)
{
    const auto* const functions = static_cast<void* const*>(frame);
    const auto code = reinterpret_cast<std::uintptr_t>(functions[0] != nullptr ? functions[0] : functions[1]);
    return symbols({code}).name(code);
}

[[noreturn]] void end(const std::string& text) noexcept
{
    write_last_words(text);
    std::abort();
}

} // namespace

void awaited_again(const void* frame, const void* awaiter) noexcept
{
    end("verbena: a task is awaited a second time; a task is awaited once: keep its value, or call the "
        "function "
        "again\n  the task: " +
        name_of(frame) + "\n  awaited by: " + name_of(awaiter) + "\n");
}

void awaited_nothing(const void* awaiter) noexcept
{
    end("verbena: a task without a coroutine is awaited; it was moved from, or made by task()\n  awaited "
        "by: " +
        name_of(awaiter) + "\n");
}

} // namespace verbena::detail
