"use strict"; globalThis.hopscopeInputs={};
