// SPDX-License-Identifier: Apache-2.0
// The cases that every file back end must pass, compiled once for all programs that have a make_backend().
#include "backend_changes_suite.hpp"
#include "backend_extents_suite.hpp"
#include "backend_suite.hpp"
#include "backend_walk_suite.hpp"
