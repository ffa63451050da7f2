// SPDX-License-Identifier: Apache-2.0
// What every file back end must do. A test file defines make_backend() and includes this; the cases
// then run against that back end.
#pragma once

#include "backend_files_suite.hpp"
#include "backend_names_suite.hpp"
#include "backend_rights_suite.hpp"
