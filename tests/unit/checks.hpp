// SPDX-License-Identifier: Apache-2.0
// Boost.Test's most common checks, for less of the compiler's time. Boost's macros become a dozen calls and
// temporaries at each of 17,000 places, which the sanitizer and the code generator then work through. Here a place
// has the expression and two calls, and the rest stands once. What is counted, printed and thrown is Boost's own.
// Precompiled headers include this; where there are none the macros are Boost's.
#pragma once
// As Boost's: a warning is about what stands in a macro's parentheses, and not about what the macro makes of it.
#pragma GCC system_header

#include <boost/test/unit_test.hpp>

#include <cstddef>

namespace verbena::checks {

using level = boost::test_tools::tt_detail::tool_level;

inline constexpr boost::test_tools::assertion::seed begin{};

/// Tells Boost where the test is, for what throws or crashes next.
void at(const char* file, std::size_t line);
/// Counts it as Boost does: prints what does not hold, and throws if the level is REQUIRE.
void report(const boost::test_tools::assertion_result& result, const char* text, const char* file,
            std::size_t line, level how, boost::test_tools::tt_detail::check_type type);

/// BOOST_TEST and BOOST_TEST_REQUIRE of one argument.
template<class Expression>
void judge(const Expression& expression, const char* text, const char* file, std::size_t line, level how)
{
    report(expression.evaluate(), text, file, line, how, boost::test_tools::tt_detail::CHECK_BUILT_ASSERTION);
}
/// BOOST_CHECK and BOOST_REQUIRE.
template<class Condition>
void hold(const Condition& condition, const char* text, const char* file, std::size_t line, level how)
{
    report(condition, text, file, line, how, boost::test_tools::tt_detail::CHECK_PRED);
}

} // namespace verbena::checks

#define VERBENA_JUDGE(LEVEL, P)                                                                        \
    do {                                                                                               \
        ::verbena::checks::at(__FILE__, __LINE__);                                                     \
        ::verbena::checks::judge(::verbena::checks::begin->*P, BOOST_STRINGIZE(P), __FILE__, __LINE__, \
                                 ::boost::test_tools::tt_detail::LEVEL);                               \
    } while (false)
#define VERBENA_HOLD(LEVEL, P)                                               \
    do {                                                                     \
        ::verbena::checks::at(__FILE__, __LINE__);                           \
        ::verbena::checks::hold((P), BOOST_STRINGIZE(P), __FILE__, __LINE__, \
                                ::boost::test_tools::tt_detail::LEVEL);      \
    } while (false)

#undef BOOST_TEST
#undef BOOST_TEST_REQUIRE
#undef BOOST_CHECK
#undef BOOST_REQUIRE
#define BOOST_TEST(...) \
    BOOST_TEST_INVOKE_IF_N_ARGS(2, VERBENA_JUDGE, BOOST_TEST_TOOL_UNIV_EX, CHECK, __VA_ARGS__)
#define BOOST_TEST_REQUIRE(...) \
    BOOST_TEST_INVOKE_IF_N_ARGS(2, VERBENA_JUDGE, BOOST_TEST_TOOL_UNIV_EX, REQUIRE, __VA_ARGS__)
#define BOOST_CHECK(P) VERBENA_HOLD(CHECK, P)
#define BOOST_REQUIRE(P) VERBENA_HOLD(REQUIRE, P)
