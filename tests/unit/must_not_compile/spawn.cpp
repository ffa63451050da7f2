// SPDX-License-Identifier: Apache-2.0
// What a scope refuses to run. ../must_not_compile_test.py says how this is read.
#include <verbena/core/task/scope.hpp>

#include <functional>
#include <utility>

using namespace verbena;

task<void> child(int& n);
task<int> value();

void tasks(scope& s, int& n)
{
#ifdef MENDED
    s.spawn(child, std::ref(n));
    s.spawn([&]() -> task<void> { co_await child(n); });
#else
    s.spawn(child(n)); // says: write s.spawn(f, args...) or s.spawn([&] { return f(args...); })
    task<void> named = child(n);
    s.spawn(named);   // says: spawn takes what makes the task, not the task
    s.spawn(value()); // says: spawn takes what makes the task, not the task
#endif
}

void references(scope& s, int& n)
{
#ifdef MENDED
    s.spawn(child, std::ref(n));
#else
    s.spawn(child, n); // says: what the callable takes as T& is written std::ref(x)
#endif
}

void values(scope& s)
{
#ifdef MENDED
    s.spawn([]() -> task<void> { (void)co_await value(); });
#else
    s.spawn(value); // says: spawn's callable returns task<void>
    s.spawn([] {}); // says: spawn's callable returns task<void>
#endif
}
